#include "encoder_text.h"

#include <stdio.h>

#define FORM "features=%zu,channels=%zu,width=%zu,heads=%zu,kernel=%zu,blocks=%zu,relative=%d"

const char *encoder_text(const speech_encoder_config *c, char text[ENCODER_TEXT])
{
    snprintf(text, ENCODER_TEXT, FORM, c->features, c->channels, c->width, c->heads, c->kernel, c->blocks, c->relative);
    return text;
}

/* As large as the options allow: beyond them counts of weights would not fit a number. */
static int is_moderate(const speech_encoder_config *c)
{
    return c->features <= 1 << 20 && c->channels <= 65536 && c->width <= 65536 && c->heads <= 1024 &&
           c->kernel <= 1023 && c->blocks <= 1000;
}

tw_status encoder_parse(const char *text, speech_encoder_config *c)
{
    char end;
    *c = (speech_encoder_config){.keep = 1};
    if (sscanf(text, FORM "%c", &c->features, &c->channels, &c->width, &c->heads, &c->kernel, &c->blocks, &c->relative,
               &end) == 7 &&
        (c->relative == 0 || c->relative == 1) && is_moderate(c) && speech_encoder_check(c) == TW_OK)
        return TW_OK;
    return tw_fail(TW_ERROR_FORMAT, "its speech encoder cannot be: %.100s", text);
}
