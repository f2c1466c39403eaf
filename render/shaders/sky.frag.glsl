#version 450
#include "rounded.glsl"

in vec4 ray_up;
flat in vec4 horizon_far;
flat in vec4 zenith_is_flat;

layout(location = 0) out vec4 out_color;
layout(location = 1) out float out_depth;
#ifdef NORMALS
layout(location = 2) out vec4 out_normal;
#endif
#ifdef FLOW
#include "flow.glsl"
#endif

void main() {
    float t = zenith_is_flat.w > 0.0 ? ray_up.w : max(0.0, normalize(ray_up.xyz).z);
    out_color = vec4(rounded(mix(horizon_far.rgb, zenith_is_flat.rgb, t * (2.0 - t))), 0.0);
    out_depth = horizon_far.w;
#ifdef NORMALS
    out_normal = vec4(0.0);
#endif
#ifdef FLOW
    write_flow();
#endif
}
