// The lamps of a page's layers, one after another: kernels/gl/packing.py writes six vectors for each.
layout(binding = 4) uniform samplerBuffer lamps;

const int PLACE = 0;         // from the eye to the lamp where w is 1, else the way to the light, unit length
const int LAMP_AMBIENT = 1;  // w: cosine of the angle around its direction where it shines, -1: all around
const int DIFFUSE = 2;       // w: exponent of that cosine
const int SPECULAR = 3;
const int DIRECTION = 4;     // the way it points, unit length
const int FADING = 5;        // by distance: constant, linear, quadratic

vec4 of_lamp(int lamp, int what) { return texelFetch(lamps, 6 * lamp + what); }
