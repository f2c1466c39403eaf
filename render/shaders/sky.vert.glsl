#version 450
#extension GL_ARB_shader_viewport_layer_array : require
#include "layers.glsl"

// One triangle that covers a whole layer, at the far plane; one instance is one layer.
out vec4 ray_up;               // the ray through this point; w: height in the frame, 0 at the bottom to 1
flat out vec4 horizon_far;     // the sky's colour at the horizon; w: depth of the far plane
flat out vec4 zenith_is_flat;  // the sky's colour at the zenith; w: 1 if orthographic
// For a sky box.
out vec3 sky_ray;              // the same ray; in an orthographic view, the camera's forward axis
flat out ivec2 sky_texture_level;

void main() {
    vec2 corner = vec2(gl_VertexID == 1 ? 3.0 : -1.0, gl_VertexID == 2 ? 3.0 : -1.0);
    gl_Position = vec4(corner, 0.0, 1.0);
    gl_Layer = gl_InstanceID;
    vec3 ray = of_layer(gl_InstanceID, FORWARD).xyz;
    ray += corner.x * of_layer(gl_InstanceID, RIGHT).xyz - corner.y * of_layer(gl_InstanceID, UP).xyz;
    ray_up = vec4(ray, 0.5 - 0.5 * corner.y);
    horizon_far = vec4(of_layer(gl_InstanceID, SKY_HORIZON).rgb, of_layer(gl_InstanceID, AMBIENT_GROUND).w);
    zenith_is_flat = vec4(of_layer(gl_InstanceID, SKY_ZENITH).rgb, of_layer(gl_InstanceID, FOG_COLOR).w);
    sky_ray = zenith_is_flat.w > 0.0 ? of_layer(gl_InstanceID, FORWARD).xyz : ray;
    sky_texture_level = ivec2(of_layer(gl_InstanceID, SKY_HORIZON).w, of_layer(gl_InstanceID, SKY_ZENITH).w);
}
