#version 450
#include "surface.glsl"

in vec3 from_eye;

#include "shadows.glsl"

// Lit by the lane's directional light, as far as it reaches, and its ambient light.
void main() {
    vec3 albedo = color_label.rgb;
    if (texture_index >= 0) albedo *= texel();
    vec3 n = unit_normal();
    vec3 light = mix(ambient_ground.rgb, ambient.rgb, 0.5 + 0.5 * n.z);
    float reaching = map_range.y > 0 ? lit(map_range.x) : 1.0;
    light += light_color.rgb * (reaching * max(0.0, dot(n, to_light.xyz)));
    write(min(vec3(1.0), albedo * light));
}
