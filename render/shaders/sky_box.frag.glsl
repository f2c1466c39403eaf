#version 450
#include "rounded.glsl"

in vec3 sky_ray;
flat in vec4 horizon_far;
flat in ivec2 sky_texture_level;  // the first of six textures, and which of their levels

layout(binding = 0) uniform sampler2DArray textures;

layout(location = 0) out vec4 out_color;
layout(location = 1) out float out_depth;

// The sides of a cube map, in OpenGL's order and turned as it turns them; of axes equally long, the first.
void main() {
    vec3 way = vec3(sky_ray.x, sky_ray.z, -sky_ray.y), size = abs(way);
    int face;
    vec3 across;  // to the right on that side, down, and how far away it is
    if (size.x >= size.y && size.x >= size.z) {
        face = way.x >= 0.0 ? 0 : 1;
        across = vec3(way.x >= 0.0 ? -way.z : way.z, -way.y, size.x);
    } else if (size.y >= size.z) {
        face = way.y >= 0.0 ? 2 : 3;
        across = vec3(way.x, way.y >= 0.0 ? way.z : -way.z, size.y);
    } else {
        face = way.z >= 0.0 ? 4 : 5;
        across = vec3(way.z >= 0.0 ? way.x : -way.x, -way.y, size.z);
    }
    int level = sky_texture_level.y;
    float half_texel = 0.5 / float(textureSize(textures, level).x);
    vec2 uv = clamp(0.5 + 0.5 * across.xy / across.z, half_texel, 1.0 - half_texel);
    out_color = vec4(rounded(textureLod(textures, vec3(uv, sky_texture_level.x + face), float(level)).rgb), 0.0);
    out_depth = horizon_far.w;
}
