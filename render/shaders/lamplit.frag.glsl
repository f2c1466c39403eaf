#version 450
#include "surface.glsl"
#include "lamplight.glsl"

void main() {
    vec3 n = unit_normal();
    vec3 viewer = to_viewer.w > 0.0 ? to_viewer.xyz : unit(-from_eye);
    vec3 light = shine.x * color_label.rgb;
    float facing;
    for (int k = 0; k < lamp_range.y; ++k) light += lamplight(lamp_range.x + k, n, viewer, facing);
    vec3 color = min(vec3(1.0), light);
    if (texture_index >= 0) color *= texel();
    write(color);
}
