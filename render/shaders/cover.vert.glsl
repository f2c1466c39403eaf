#version 450
#extension GL_ARB_shader_viewport_layer_array : require

// One triangle that covers a whole layer, at the far plane; one instance is one layer.
flat out int layer_index;

void main() {
    gl_Position = vec4(gl_VertexID == 1 ? 3.0 : -1.0, gl_VertexID == 2 ? 3.0 : -1.0, 0.0, 1.0);
    gl_Layer = gl_InstanceID;
    layer_index = gl_InstanceID;
}
