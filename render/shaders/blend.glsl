// What blending a layer over a page needs, with one sample a pixel and with several.
flat in int layer_index;

// By rank, then by layer of the target. Storage, as a buffer texture may be too small for all of them.
layout(std430, binding = 0) readonly buffer Alphas { float alphas[]; };
layout(location = 0) uniform int first_alpha;

layout(location = 0) out vec4 out_color;

// Both are whole levels of 255, and so is the result, halves rounded up. The mask of colours keeps the label.
void blend(vec4 above, vec4 below) {
    if (above.a == 0.0) discard;
    float alpha = alphas[first_alpha + layer_index];
    vec3 behind = floor(below.rgb * 255.0 + 0.5), front = floor(above.rgb * 255.0 + 0.5);
    out_color = vec4(floor(behind + alpha * (front - behind) + 0.5) / 255.0, 0.0);
}
