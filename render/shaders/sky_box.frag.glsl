#version 450
#include "rounded.glsl"

in vec3 sky_ray;
flat in vec4 horizon_far;
flat in ivec2 sky_texture_level;  // first of six textures, or -2 less the only one; their mip level

flat in vec3 sky_tint;

layout(binding = 0) uniform sampler2DArray textures;

layout(location = 0) out vec4 out_color;
layout(location = 1) out float out_depth;
#ifdef NORMALS
layout(location = 2) out vec4 out_normal;
#endif
#ifdef FLOW
#include "flow.glsl"
#endif

// The faces of a cube map, in the order and orientation of OpenGL; of axes equally long, the first.
void main() {
    vec3 ray = vec3(sky_ray.x, sky_ray.z, -sky_ray.y), size = abs(ray);
    int face;
    vec3 across;  // coordinates to the right and down on that face, and the distance of its plane
    if (size.x >= size.y && size.x >= size.z) {
        face = ray.x >= 0.0 ? 0 : 1;
        across = vec3(ray.x >= 0.0 ? -ray.z : ray.z, -ray.y, size.x);
    } else if (size.y >= size.z) {
        face = ray.y >= 0.0 ? 2 : 3;
        across = vec3(ray.x, ray.y >= 0.0 ? ray.z : -ray.z, size.y);
    } else {
        face = ray.z >= 0.0 ? 4 : 5;
        across = vec3(ray.z >= 0.0 ? ray.x : -ray.x, -ray.y, size.z);
    }
    int level = sky_texture_level.y;
    float half_texel = 0.5 / float(textureSize(textures, level).x);
    vec2 uv = clamp(0.5 + 0.5 * across.xy / across.z, half_texel, 1.0 - half_texel);
    int first = sky_texture_level.x, layer = first < -1 ? -2 - first : first + face;
    out_color = vec4(rounded(sky_tint * textureLod(textures, vec3(uv, layer), float(level)).rgb), 0.0);
    out_depth = horizon_far.w;
#ifdef NORMALS
    out_normal = vec4(0.0);
#endif
#ifdef FLOW
    write_flow();
#endif
}
