#version 450
#extension GL_ARB_shader_viewport_layer_array : require
#include "layers.glsl"
#ifdef FLOW
#include "before.glsl"
#endif

layout(location = 0) in vec3 position;
layout(location = 1) in vec3 normal;
layout(location = 2) in vec2 uv;
// The record of one visible row, the same for all its vertices; written by kernels/gl/packing.py.
layout(location = 3) in vec4 to_clip_x;
layout(location = 4) in vec4 to_clip_y;
layout(location = 5) in vec4 to_depth;
layout(location = 6) in vec4 depth_to_clip;  // z scale, z offset, 1 if orthographic, layer
layout(location = 7) in vec4 cofactors_x;    // w: red
layout(location = 8) in vec4 cofactors_y;    // w: green
layout(location = 9) in vec4 cofactors_z;    // w: blue
layout(location = 10) in vec4 surface;       // uv scale, texture, label
layout(location = 11) in vec4 shine_of_row;  // emission, specular, exponent; number on light maps
#ifdef FLOW
// The same row one step before.
layout(location = 12) in vec4 to_clip_x_before;
layout(location = 13) in vec4 to_clip_y_before;
layout(location = 14) in vec4 to_depth_before;
#endif

out vec3 world_normal;
out vec2 scaled_uv;
out float depth_m;
flat out vec4 color_label;
flat out int texture_index;
flat out vec4 to_light;
flat out vec4 light_color;
flat out vec4 ambient;
flat out vec4 ambient_ground;
flat out vec3 fog_color;
// For lamps.
out vec3 from_eye;
flat out vec3 shine;
flat out ivec2 lamp_range;
flat out vec4 to_viewer;
// For shadows.
flat out int own_number;
flat out ivec2 map_range;
#ifdef NORMALS
out vec3 camera_normal;
#endif
#ifdef FLOW
out vec3 clip_before;
flat out vec4 frame_before;
#endif

void main() {
    vec4 local = vec4(position, 1.0);
    depth_m = dot(to_depth, local);
    vec2 clip = vec2(dot(to_clip_x, local), dot(to_clip_y, local));
    gl_Position = vec4(
        clip.x,
        -clip.y,  // flipped, so that row 0 of the target is the top of the frame
        depth_to_clip.x * depth_m + depth_to_clip.y,
        depth_to_clip.z > 0.0 ? 1.0 : depth_m
    );
    int layer = int(depth_to_clip.w);
    gl_Layer = layer;
    world_normal = vec3(dot(cofactors_x.xyz, normal), dot(cofactors_y.xyz, normal), dot(cofactors_z.xyz, normal));
    scaled_uv = uv * surface.xy;
    color_label = vec4(cofactors_x.w, cofactors_y.w, cofactors_z.w, surface.w / 255.0);
    texture_index = int(surface.z);
    to_light = of_layer(layer, TO_LIGHT);
    light_color = of_layer(layer, LIGHT_COLOR);
    ambient = of_layer(layer, AMBIENT);
    ambient_ground = of_layer(layer, AMBIENT_GROUND);
    fog_color = of_layer(layer, FOG_COLOR).rgb;
    vec4 right = of_layer(layer, RIGHT), up = of_layer(layer, UP);
    vec4 forward_maps = of_layer(layer, FORWARD);
    vec3 forward = forward_maps.xyz;
    from_eye = clip.x * right.xyz + clip.y * up.xyz + depth_m * forward;
    shine = shine_of_row.xyz;
    lamp_range = ivec2(right.w, up.w);
    to_viewer = vec4(-forward, depth_to_clip.z);
    own_number = int(shine_of_row.w);
    map_range = ivec2(int(forward_maps.w) >> 4, int(forward_maps.w) & 15);
#ifdef NORMALS
    camera_normal = vec3(
        dot(world_normal, normalize(right.xyz)), dot(world_normal, normalize(up.xyz)), dot(world_normal, -forward)
    );
#endif
#ifdef FLOW
    clip_before = vec3(
        dot(to_clip_x_before, local),
        dot(to_clip_y_before, local),
        depth_to_clip.z > 0.0 ? 1.0 : dot(to_depth_before, local)
    );
    frame_before = vec4(
        of_layer_before(layer, RIGHT_BEFORE).w,
        of_layer_before(layer, UP_BEFORE).w,
        of_layer_before(layer, FORWARD_BEFORE).w,
        of_layer_before(layer, IS_KNOWN).x
    );
#endif
}
