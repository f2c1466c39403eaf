#version 450
#extension GL_ARB_shader_viewport_layer_array : require
#include "layers.glsl"
#ifdef FLOW
#include "before.glsl"
#endif

// One triangle that covers a whole layer, at the far plane; one instance is one layer.
const int ONE_SKY = -2, SCREEN_SKY = -(1 << 20), TINTED_SKY = 1 << 20;  // as in kernels/tables.py
out vec4 ray_up;               // the ray through this point; w: height in the frame, 0 at the bottom to 1
flat out vec4 horizon_far;     // the sky's colour at the horizon; w: depth of the far plane
flat out vec4 zenith_is_flat;  // the sky's colour at the zenith; w: 1 if orthographic
// For a sky box.
out vec3 sky_ray;              // the same ray; in an orthographic view, the camera's forward axis; or all of one side
flat out ivec2 sky_texture_level;
flat out vec3 sky_tint;
#ifdef FLOW
out vec3 clip_before;  // a point at infinity, which the camera alone moves
flat out vec4 frame_before;
#endif

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
    int sky = int(of_layer(gl_InstanceID, SKY_HORIZON).w);
    bool fills_screen = sky <= SCREEN_SKY;
    if (fills_screen || zenith_is_flat.w > 0.0 && sky <= ONE_SKY) sky_ray = vec3(1.0, corner.x, -corner.y);
    sky_tint = sky >= TINTED_SKY ? zenith_is_flat.rgb : vec3(1.0);
    if (sky >= TINTED_SKY) sky -= TINTED_SKY;
    sky_texture_level = ivec2(fills_screen ? sky - SCREEN_SKY + ONE_SKY : sky, of_layer(gl_InstanceID, SKY_ZENITH).w);
#ifdef FLOW
    vec4 right = of_layer_before(gl_InstanceID, RIGHT_BEFORE), up = of_layer_before(gl_InstanceID, UP_BEFORE);
    clip_before = vec3(
        dot(right.xyz, ray), dot(up.xyz, ray), dot(of_layer_before(gl_InstanceID, FORWARD_BEFORE).xyz, ray)
    );
    bool is_flat = zenith_is_flat.w > 0.0;
    frame_before = vec4(right.w, up.w, 1e-30, is_flat ? 0.0 : of_layer_before(gl_InstanceID, IS_KNOWN).x);
#endif
}
