#version 450
#include "blend.glsl"

layout(binding = 1) uniform sampler2DMSArray layer;
layout(binding = 2) uniform sampler2DMSArray page;

void main() {
    ivec3 texel = ivec3(gl_FragCoord.xy, layer_index);
    blend(texelFetch(layer, texel, gl_SampleID), texelFetch(page, texel, gl_SampleID));
}
