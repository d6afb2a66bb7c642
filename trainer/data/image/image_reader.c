#include "image_reader.h"

#include <stdlib.h>
#include <string.h>

#include "batch.h"
#include "error.h"

struct image_reader {
    dataset data; /* its statistics */
    image_set shape;
    image_treatment treatment;
    picture_desk desk;
};

tw_status image_reader_create(const image_form *form, image_reader **out)
{
    image_reader *r = calloc(1, sizeof *r);
    if (!r) return tw_fail(TW_ERROR_MEMORY, "no memory to read pictures");
    memcpy(r->data.mean, form->mean, sizeof form->mean);
    memcpy(r->data.deviation, form->deviation, sizeof form->deviation);
    r->shape = (image_set){.channels = form->channels, .height = form->height, .width = form->width};
    r->treatment = image_treatment_of(&r->data, &r->shape, NULL, 0, 0);
    *out = r;
    return TW_OK;
}

void image_reader_destroy(image_reader *r)
{
    if (!r) return;
    picture_desk_release(&r->desk);
    free(r);
}

tw_status image_reader_read(image_reader *r, const char *path, float *image)
{
    return image_treat_path(&r->treatment, &r->desk, path, 0, image);
}
