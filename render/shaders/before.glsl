// The camera of each layer one step before: four vectors each, written by kernels/gl/packing.py.
layout(binding = 7) uniform samplerBuffer layers_before;

const int RIGHT_BEFORE = 0;    // from world to clip x; w: half the frame's width in pixels
const int UP_BEFORE = 1;       // from world to clip y; w: half the frame's height in pixels
const int FORWARD_BEFORE = 2;  // w: depth from which on a point was seen, or that of no point
const int IS_KNOWN = 3;        // x: 1 if there was a step before

vec4 of_layer_before(int layer, int what) { return texelFetch(layers_before, 4 * layer + what); }
