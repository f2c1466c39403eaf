/* The part of the address behind "#", such as a lane, stays in the address when somebody signs in. */
"use strict";
document.forms[0].action += location.hash;
