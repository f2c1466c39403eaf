#version 450

in float key;
flat in vec3 size_side;
flat in float row_number;

layout(location = 0) out vec2 key_number;

// What the light meets: its key and its row's number. The outermost texels of a map stay empty.
void main() {
    bool is_spot = size_side.z > 2.0;
    float side = is_spot ? size_side.z - 4.0 : size_side.z;
    if (side != 0.0 && gl_FrontFacing != (side > 0.0)) discard;
    if (any(lessThan(gl_FragCoord.xy, vec2(1.0))) || any(greaterThan(gl_FragCoord.xy, size_side.xy - 1.0))) discard;
    key_number = vec2(is_spot ? gl_FragCoord.w : key, row_number);
}
