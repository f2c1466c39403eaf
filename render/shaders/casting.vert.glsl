#version 450
#extension GL_ARB_shader_viewport_layer_array : require

layout(location = 0) in vec3 position;
// The record of one row on one light map, written by kernels/gl/casting.py.
layout(location = 3) in vec4 to_map_x;
layout(location = 4) in vec4 to_map_y;
layout(location = 5) in vec4 to_depth;
layout(location = 6) in vec4 nearest_farthest;  // z: 1 if the light is a spot, w: layer
layout(location = 7) in vec4 size;              // of the map; z: of the target; w: side that casts, 0 for both
layout(location = 8) in vec4 number_key;        // the row's number; what parallel light's depth is subtracted from

out float key;
flat out vec3 size_side;
flat out float row_number;

void main() {
    vec4 local = vec4(position, 1.0);
    vec2 at = vec2(dot(to_map_x, local), dot(to_map_y, local));
    float depth = dot(to_depth, local);
    bool is_spot = nearest_farthest.z > 0.0;
    float w = is_spot ? depth : 1.0;
    // Greater where it is nearer to the light, as in a view.
    float z = is_spot ? 0.01 : (nearest_farthest.y - depth) / (nearest_farthest.y - nearest_farthest.x);
    gl_Position = vec4(2.0 * at / size.z - w, z, w);
    gl_Layer = int(nearest_farthest.w);
    key = number_key.y - depth;
    size_side = vec3(size.xy, is_spot ? size.w + 4.0 : size.w);
    row_number = number_key.x;
}
