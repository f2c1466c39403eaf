// To the nearest of the 256 values, here and not by the driver, which may round as it likes.
vec3 rounded(vec3 color) { return floor(color * 255.0 + 0.5) / 255.0; }
