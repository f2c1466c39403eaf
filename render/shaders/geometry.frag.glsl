#version 450
#include "surface.glsl"

// Lit by the lane's directional light and its ambient light.
void main() {
    vec3 albedo = color_label.rgb;
    if (texture_index >= 0) albedo *= texel();
    vec3 n = unit_normal();
    vec3 light = mix(ambient_ground.rgb, ambient.rgb, 0.5 + 0.5 * n.z);
    light += light_color.rgb * max(0.0, dot(n, to_light.xyz));
    write(min(vec3(1.0), albedo * light));
}
