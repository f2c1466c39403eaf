// The lamps of the layers of a page, layer after layer: six vectors each, written by kernels/gl/packing.py.
layout(binding = 4) uniform samplerBuffer lamps;

const int POSITION = 0;      // of a spot, relative to the camera (w is 1), else the unit vector towards the light
const int LAMP_AMBIENT = 1;  // w: cosine of the half angle of its cone, -1: all directions
const int DIFFUSE = 2;       // w: exponent of that cosine
const int SPECULAR = 3;      // w: 0 if it casts no shadows; 1 if none is seen; else 2 + the index of its light map
const int DIRECTION = 4;     // unit vector
const int ATTENUATION = 5;   // by distance: constant, linear, quadratic

vec4 of_lamp(int lamp, int what) { return texelFetch(lamps, 6 * lamp + what); }
