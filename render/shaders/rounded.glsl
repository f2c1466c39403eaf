// Rounds to the nearest of the 256 values here, since the rounding of drivers differs.
vec3 rounded(vec3 color) { return floor(color * 255.0 + 0.5) / 255.0; }
