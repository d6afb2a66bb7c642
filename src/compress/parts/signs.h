/* signs.h - the common half of sign and onebit: one bit an element, one or two magnitudes a section, error feedback.
 *
 * Memory is passed over once. The residual keeps p = e + a*g itself, and `sent` what its elements were sent as: the
 * next step finds e = p - (p < 0 ? sent[1] : sent[0]) while it adds the gradient, and to take a step back is to forget
 * what was sent. */
#ifndef TW_SIGNS_H
#define TW_SIGNS_H

#include "quantised.h"

typedef struct tw_signs {
    tw_quantised quantised;
    int means; /* that travel: 1, of the magnitudes; or 2, of the elements that are not negative and of the others */
    float (*sent)[2]; /* a part's elements that were not negative, and that were, when it was encoded last */
} tw_signs;

tw_status tw_signs_create(tw_scheme *scheme, int means);
void tw_signs_destroy(tw_scheme *scheme);
void tw_signs_revert(tw_scheme *scheme);
void tw_signs_settle(tw_scheme *scheme);

#endif
