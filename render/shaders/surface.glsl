// Inputs and outputs of fragment shaders of surfaces, and what they share.
#include "rounded.glsl"

in vec3 world_normal;
in vec2 scaled_uv;
in float depth_m;
flat in vec4 color_label;
flat in int texture_index;
flat in vec4 to_light;        // w: depth where fog begins
flat in vec4 light_color;     // w: 1 / (depth where fog ends - where it begins), 0 without fog
flat in vec4 ambient;         // w: near
flat in vec4 ambient_ground;  // w: far
flat in vec3 fog_color;

layout(binding = 0) uniform sampler2DArray textures;

layout(location = 0) out vec4 out_color;  // rgb, and the label as alpha
layout(location = 1) out float out_depth;
#ifdef NORMALS
in vec3 camera_normal;
layout(location = 2) out vec4 out_normal;
#endif
#ifdef FLOW
#include "flow.glsl"
#endif

// The level of detail from derivatives that are exact at the pixel's centre: uv / w and 1 / w are linear on the screen,
// so their differences between neighbours are their derivatives, and the quotient rule gives those of uv.
vec3 texel() {
    float q = gl_FragCoord.w;
    vec2 size = vec2(textureSize(textures, 0).xy);
    vec2 over_w = scaled_uv * q;
    vec2 along_x = size * (dFdx(over_w) - scaled_uv * dFdx(q)) / q;
    vec2 along_y = size * (dFdy(over_w) - scaled_uv * dFdy(q)) / q;
    float rho2 = max(dot(along_x, along_x), dot(along_y, along_y));
    float smallest = float(textureQueryLevels(textures) - 1);
    float level = clamp(floor(0.5 * log2(rho2) + 0.5), 0.0, smallest);
    return textureLod(textures, vec3(scaled_uv, texture_index), level).rgb;
}

vec3 turned_to_viewer(vec3 normal) {
    // The sign of the pose's determinant flips both the cofactors and the winding: gl_FrontFacing accounts for both.
    vec3 n = gl_FrontFacing ? normal : -normal;
    return n * inversesqrt(max(dot(n, n), 1e-30));
}

vec3 unit_normal() { return turned_to_viewer(world_normal); }

void write(vec3 color) {
    // A pixel's centre may lie outside a triangle that covers only some of its samples, and so outside near..far.
    float depth = clamp(depth_m, ambient.w, ambient_ground.w);
    float fog = clamp((depth - to_light.w) * light_color.w, 0.0, 1.0);
    out_color = vec4(rounded(mix(color, fog_color, fog)), color_label.a);
    out_depth = depth;
#ifdef NORMALS
    out_normal = vec4(clamp(turned_to_viewer(camera_normal), -1.0, 1.0), 0.0);
#endif
#ifdef FLOW
    write_flow();
#endif
}
