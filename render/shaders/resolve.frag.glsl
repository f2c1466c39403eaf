#version 450

flat in int layer_index;

layout(binding = 1) uniform sampler2DMSArray sampled_color;
layout(binding = 2) uniform sampler2DMSArray sampled_depth;
#ifdef NORMALS
layout(binding = 5) uniform sampler2DMSArray sampled_normals;
layout(location = 2) out vec4 out_normal;
#endif
#ifdef FLOW
layout(binding = 6) uniform sampler2DMSArray sampled_flow;
layout(location = 3) out vec2 out_flow;
#endif

layout(location = 0) out vec4 out_color;
layout(location = 1) out float out_depth;

// The mean of four colours, halves rounded up; all else is that of the first sample: a mean has no meaning.
void main() {
    ivec3 texel = ivec3(gl_FragCoord.xy, layer_index);
    vec4 first = texelFetch(sampled_color, texel, 0);
    vec3 sum = first.rgb;
    for (int k = 1; k < 4; ++k) sum += texelFetch(sampled_color, texel, k).rgb;
    vec3 levels = floor(sum * 255.0 + 0.5);
    out_color = vec4(floor(levels / 4.0 + 0.5) / 255.0, first.a);
    out_depth = texelFetch(sampled_depth, texel, 0).r;
#ifdef NORMALS
    out_normal = texelFetch(sampled_normals, texel, 0);
#endif
#ifdef FLOW
    out_flow = texelFetch(sampled_flow, texel, 0).rg;
#endif
}
