#version 450
#include "blend.glsl"

layout(binding = 1) uniform sampler2DArray layer;
layout(binding = 2) uniform sampler2DArray page;

void main() {
    ivec3 texel = ivec3(gl_FragCoord.xy, layer_index);
    blend(texelFetch(layer, texel, 0), texelFetch(page, texel, 0));
}
