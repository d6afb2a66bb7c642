/* rates.h - an option's text that gives some tensors a rate of their own: "conv1*@25|fc*@400". The first pattern (with
 * * and ?) that matches a name counts. */
#ifndef TW_RATES_H
#define TW_RATES_H

#include <stddef.h>
#include <thinwire/thinwire.h>

enum { TW_MOST_RATE = 1 << 20 };

/* The rate of the tensor called `name`: `otherwise` if no pattern matches. TW_ERROR_SPEC if the text is not as above or
 * a rate is not 1 .. TW_MOST_RATE. */
tw_status tw_rate_of(const char *rates, const char *name, size_t otherwise, size_t *rate);

/* TW_ERROR_SPEC also if a pattern matches no tensor: a misspelt name must not pass for a rule. */
tw_status tw_rates_check(const char *rates, const tw_tensor *tensors, size_t count);

#endif
