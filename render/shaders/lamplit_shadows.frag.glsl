#version 450
#include "surface.glsl"
#include "lamplight.glsl"
#include "shadows.glsl"

// Lamps that cast shadows are clamped each by itself, and reach only what faces them.
void main() {
    vec3 n = unit_normal();
    vec3 viewer = to_viewer.w > 0.0 ? to_viewer.xyz : unit(-from_eye);
    vec3 light = shine.x * color_label.rgb, more = vec3(0.0);
    for (int k = lamp_range.x; k < lamp_range.x + lamp_range.y; ++k) {
        int shadow = int(of_lamp(k, SPECULAR).w);
        float facing, reaching = shadow >= 2 ? lit(shadow - 2) : 1.0;
        vec3 part = lamplight(k, n, viewer, facing);
        if (shadow == 0) light += part;
        else if (facing > 0.0) more += min(vec3(1.0), part) * reaching;
    }
    vec3 color = min(vec3(1.0), light) + more;
    if (texture_index >= 0) color *= texel();
    write(min(vec3(1.0), color));
}
