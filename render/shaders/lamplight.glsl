// The light of one lamp on a surface.
#include "lamps.glsl"

in vec3 from_eye;
flat in vec3 shine;         // emission, specular, exponent
flat in ivec2 lamp_range;   // the first of the layer's lamps, how many
flat in vec4 to_viewer;     // w: 1 if orthographic, where the direction to the viewer is constant

// The power of a base of 0 or more; pow(0, 0) is undefined in GLSL.
float power(float base, float exponent) {
    if (exponent == 0.0) return 1.0;
    return base > 0.0 ? pow(base, exponent) : 0.0;
}

vec3 unit(vec3 v) { return v * inversesqrt(max(dot(v, v), 1e-30)); }

// Strength of a lamp at a point; `away` is the vector from there to the lamp.
float strength(int lamp, vec3 away, vec3 to_lamp, float cone, float exponent) {
    float distance = length(away);
    float left = 1.0 / dot(of_lamp(lamp, ATTENUATION).xyz, vec3(1.0, distance, distance * distance));
    if (cone <= -1.0) return left;
    float along = -dot(to_lamp, of_lamp(lamp, DIRECTION).xyz);
    return along >= cone && along > 0.0 ? left * power(along, exponent) : 0.0;
}

vec3 lamplight(int lamp, vec3 n, vec3 viewer, out float facing) {
    vec4 position = of_lamp(lamp, POSITION);
    vec4 ambient_cone = of_lamp(lamp, LAMP_AMBIENT), diffuse = of_lamp(lamp, DIFFUSE);
    vec3 to_lamp = position.xyz;
    float left = 1.0;
    if (position.w > 0.0) {
        vec3 away = position.xyz - from_eye;
        to_lamp = unit(away);
        left = strength(lamp, away, to_lamp, ambient_cone.w, diffuse.w);
    }
    facing = dot(n, to_lamp);
    vec3 light = color_label.rgb * (ambient_cone.rgb + diffuse.rgb * max(0.0, facing));
    if (facing > 0.0 && shine.y != 0.0)
        light += of_lamp(lamp, SPECULAR).rgb * shine.y * power(max(0.0, dot(n, unit(to_lamp + viewer))), shine.z);
    return left * light;
}
