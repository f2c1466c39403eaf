#version 450

flat in int layer_index;

layout(binding = 1) uniform sampler2DMSArray sampled_color;
layout(binding = 2) uniform sampler2DMSArray sampled_depth;

layout(location = 0) out vec4 out_color;
layout(location = 1) out float out_depth;

// The mean of four colours, halves rounded up; label and depth are those of the first sample: a mean has no meaning.
void main() {
    ivec3 texel = ivec3(gl_FragCoord.xy, layer_index);
    vec4 first = texelFetch(sampled_color, texel, 0);
    vec3 sum = first.rgb;
    for (int k = 1; k < 4; ++k) sum += texelFetch(sampled_color, texel, k).rgb;
    vec3 levels = floor(sum * 255.0 + 0.5);
    out_color = vec4(floor(levels / 4.0 + 0.5) / 255.0, first.a);
    out_depth = texelFetch(sampled_depth, texel, 0).r;
}
