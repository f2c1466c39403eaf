// View and lane of each layer of the target: ten vectors each, written by kernels/gl/packing.py. Vertex shaders read
// them and pass them on: a software driver reads a buffer texture one float at a time, which is slow for each pixel.
layout(binding = 3) uniform samplerBuffer layers;

const int TO_LIGHT = 0;        // unit vector towards the light; w: depth where fog begins
const int LIGHT_COLOR = 1;     // w: 1 / (depth where fog ends - where it begins), 0 without fog
const int AMBIENT = 2;         // what a surface facing up receives; w: near
const int AMBIENT_GROUND = 3;  // what a surface facing down receives; w: far
const int FOG_COLOR = 4;       // w: 1 if orthographic
const int SKY_HORIZON = 5;     // w: textures of the sky box, see ONE_SKY in kernels/tables.py
const int SKY_ZENITH = 6;      // w: their mip level
const int RIGHT = 7;           // at depth 1, from the middle of the frame to its right edge; w: index of its first lamp
const int UP = 8;              // and to its top edge; w: number of its lamps
const int FORWARD = 9;         // w: 16 · index of its first light map + number of its light maps

vec4 of_layer(int layer, int what) { return texelFetch(layers, 10 * layer + what); }
