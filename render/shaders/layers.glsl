// What a layer of the target needs to know of its view and its lane: kernels/gl/packing.py writes ten vectors for each.
// They are read where vertices are, and handed on: a software driver reads a table for each pixel one float at a time.
layout(binding = 3) uniform samplerBuffer layers;

const int TO_LIGHT = 0;        // unit vector towards the light; w: depth where fog begins
const int LIGHT_COLOR = 1;     // w: 1 / (depth where fog ends - where it begins), 0 without fog
const int AMBIENT = 2;         // what a surface facing up receives; w: near
const int AMBIENT_GROUND = 3;  // what a surface facing down receives; w: far
const int FOG_COLOR = 4;       // w: 1 if orthographic
const int SKY_HORIZON = 5;     // w: the first of the sky's six textures
const int SKY_ZENITH = 6;      // w: which of their levels
const int RIGHT = 7;           // from the middle of the picture, one metre ahead, to its right edge; w: the first of its lamps
const int UP = 8;              // and to its top edge; w: how many lamps it has
const int FORWARD = 9;

vec4 of_layer(int layer, int what) { return texelFetch(layers, 10 * layer + what); }
