// How far what is at a pixel has moved on the screen since the step before.
in vec3 clip_before;        // where it was: x, y, and what they are divided by
flat in vec4 frame_before;  // half width and half height in pixels, depth from which on it was seen, 1 if it is known

layout(location = 3) out vec2 out_flow;

void write_flow() {
    float w = clip_before.z;
    vec2 pixel = vec2(clip_before.x / w + 1.0, 1.0 - clip_before.y / w) * frame_before.xy;
    vec2 moved = gl_FragCoord.xy - pixel;
    bool is_seen = frame_before.w > 0.0 && w >= frame_before.z && w != 0.0;
    out_flow = is_seen && all(lessThan(abs(moved), vec2(3e38))) ? moved : vec2(0.0);
}
