// Which part of a light reaches a surface. The light maps of a page: five vectors each, written by kernels/gl/casting.py.
layout(binding = 5) uniform samplerBuffer light_maps;
layout(binding = 6) uniform sampler2DArray map_texels;  // key, and number of the row

flat in int own_number;   // number of the surface's row if it does not shadow itself, else 0
flat in ivec2 map_range;  // the first of the layer's light maps, how many

const int MAP_X = 0, MAP_Y = 1, MAP_DEPTH = 2;  // from the camera to the map, in texels times w, and to depth
const int SIZE_KEY_TEXEL = 3;                   // width, height, what depth is subtracted from, side of a texel
const int IS_SPOT = 4;

vec4 of_map(int map, int what) { return texelFetch(light_maps, 5 * map + what); }

float shadows(int map, ivec2 texel, float limit) {
    vec2 held = texelFetch(map_texels, ivec3(texel, map), 0).xy;
    return held.x >= limit && (own_number == 0 || int(held.y) != own_number) ? 1.0 : 0.0;
}

float lit(int map) {
    vec4 point = vec4(from_eye, 1.0), size = of_map(map, SIZE_KEY_TEXEL);
    vec2 at = vec2(dot(of_map(map, MAP_X), point), dot(of_map(map, MAP_Y), point));
    float depth = dot(of_map(map, MAP_DEPTH), point), key = size.z - depth, unit = size.w;
    bool is_spot = of_map(map, IS_SPOT).x > 0.0;
    if (is_spot) {
        at /= depth;
        key = 1.0 / depth;
        unit *= key;
    }
    // Over the surface's plane the key is linear, so that two neighbours on it tell how it changes from texel to texel.
    vec3 right = vec3(dFdx(at), dFdx(key)), down = vec3(dFdy(at), dFdy(key));
    float det = right.x * down.y - right.y * down.x;
    vec2 slope = vec2(right.z * down.y - right.y * down.z, right.x * down.z - right.z * down.x);
    slope = det != 0.0 ? clamp(slope / det, -64.0 * unit, 64.0 * unit) : vec2(0.0);
    if (is_spot && depth <= 0.0) return 1.0;
    vec2 held = clamp(at, vec2(0.5), size.xy - 0.5) - 0.5;
    ivec2 low = ivec2(floor(held));
    vec2 part = held - vec2(low);
    float limit = key + 0.25 * unit - dot(slope, part);
    float upper = mix(shadows(map, low, limit), shadows(map, low + ivec2(1, 0), limit + slope.x), part.x);
    limit += slope.y;
    float lower = mix(shadows(map, low + ivec2(0, 1), limit), shadows(map, low + ivec2(1), limit + slope.x), part.x);
    return 1.0 - mix(upper, lower, part.y);
}
