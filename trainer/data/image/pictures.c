/* Folders of pictures: a folder for each class in train/, beside test/ or val/ with the same, or both; or folders of
 * classes alone. A share of the training pictures may be held out. The names of the classes are those of their folders,
 * in the order of their bytes. Only names are read here; the pictures are opened when they are wanted. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "code_point.h"
#include "error.h"
#include "file.h"
#include "format.h"
#include "hold_out.h"
#include "image_loader.h"
#include "picture_files.h"
#include "regular_file.h"
#include "room.h"
#include "shuffle.h"

enum { CLASSES_MOST = 65536, USUAL_SIZE = 64, USUAL_DECODERS = 2, MEASURED_AT_ONCE = 40 };

/* The order in which pictures are listed: the same in every run. */
static const uint64_t list_seed = 0x6c697374;

/* ---- names ---- */

/* What stands in a folder, without what is hidden, in the order of bytes. */
typedef struct entries {
    struct dirent **all;
    int count;
} entries;

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static int pictures_by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static tw_status list_entries(const char *path, entries *e)
{
    e->count = scandir(path, &e->all, is_visible, pictures_by_name);
    if (e->count >= 0) return TW_OK;
    e->count = 0;
    e->all = NULL;
    return tw_fail(errno == ENOMEM ? TW_ERROR_MEMORY : TW_ERROR_IO, "%s: cannot list this folder: %s", path,
                   strerror(errno));
}

static void forget_entries(entries *e)
{
    for (int i = 0; i < e->count; i++) free(e->all[i]);
    free(e->all);
    *e = (entries){0};
}

static const char *pictures_join(char path[PICTURE_PATH_MOST], const char *folder, const char *name)
{
    int length = snprintf(path, PICTURE_PATH_MOST, "%s/%s", folder, name);
    if (length >= PICTURE_PATH_MOST) *path = '\0'; /* there is room for the longest names there are */
    return path;
}

static bool is_picture(const struct dirent *entry)
{
    static const char *const endings[] = {".jpg", ".jpeg", ".png"};
    const char *dot = strrchr(entry->d_name, '.');
    for (size_t i = 0; dot && entry->d_type != DT_DIR && i < 3; i++)
        if (strcasecmp(dot, endings[i]) == 0) return true;
    return false;
}

/* For texts. */
static const char *shown(const char *name, char text[1024])
{
    return code_point_show(name, strlen(name), text, 1024);
}

/* ---- the lists ---- */

static tw_status no_memory(void)
{
    return tw_fail(TW_ERROR_MEMORY, "no memory for the list of pictures");
}

static tw_status pictures_append(image_set *set, const char *name, size_t label)
{
    picture_files *f = set->files;
    size_t bytes = strlen(name) + 1;
    if (set->count == UINT32_MAX) return tw_fail(TW_ERROR_FORMAT, "more pictures than 2^32 - 1");
    if (!room_make(&f->names, &f->capacity, f->used + bytes, 1) ||
        !room_make(&f->at, &f->room, set->count + 1, sizeof *f->at) ||
        !room_make(&set->labels, &f->label_room, set->count + 1, sizeof *set->labels))
        return no_memory();
    memcpy(f->names + f->used, name, bytes);
    f->at[set->count] = f->used;
    set->labels[set->count++] = (uint16_t)label;
    f->used += bytes;
    return TW_OK;
}

static tw_status start_list(image_set *set, const char *root)
{
    set->files = calloc(1, sizeof *set->files);
    if (!set->files) return no_memory();
    memcpy(set->files->root, root, strlen(root) + 1);
    return TW_OK;
}

/* So that the first N are of all classes, and so are those that follow one that cannot be read. */
static tw_status mix_list(image_set *set)
{
    picture_files *f = set->files;
    if (set->count == 0) return TW_OK;
    uint32_t *order = malloc(set->count * sizeof *order);
    size_t *at = malloc(set->count * sizeof *at);
    uint16_t *labels = malloc(set->count * sizeof *labels);
    f->told = calloc(set->count, 1);
    if (order && at && labels && f->told) {
        data_shuffle(order, set->count, list_seed, 0);
        for (size_t i = 0; i < set->count; i++) {
            at[i] = f->at[order[i]];
            labels[i] = set->labels[order[i]];
        }
        memcpy(f->at, at, set->count * sizeof *at);
        memcpy(set->labels, labels, set->count * sizeof *labels);
    }
    bool done = order && at && labels && f->told;
    free(order);
    free(at);
    free(labels);
    return done ? TW_OK : no_memory();
}

/* ---- classes ---- */

/* Where the pictures of a folder go: some of them may be held out. */
typedef struct sorting {
    image_set *set, *held_out;
    double share; /* of what is held out; 0: nothing */
    size_t left_out;
    char first_left_out[PICTURE_PATH_MOST];
} sorting;

static void pictures_leave_out(sorting *s, const char *folder, const char *name)
{
    if (s->left_out++ == 0) pictures_join(s->first_left_out, folder, name);
}

/* Beside the folders of the classes it is of none. */
static void leave_out_picture(sorting *s, const char *root, const struct dirent *entry)
{
    if (is_picture(entry)) pictures_leave_out(s, root, entry->d_name);
}

static tw_status check_class_name(const char *root, const char *name)
{
    char text[1024];
    size_t length = strlen(name);
    bool plain = strcmp(shown(name, text), name) == 0;
    if (plain) return TW_OK;
    return tw_fail(TW_ERROR_FORMAT,
                   "%s: a class may not be called \"%.*s\": names are UTF-8 without control characters", root,
                   (int)(length < 200 ? 4 * length : 800), text);
}

static tw_status pictures_take_classes(sorting *s, const char *root, const entries *e, dataset *data)
{
    char path[PICTURE_PATH_MOST];
    data->class_names = calloc((size_t)e->count + 1, sizeof *data->class_names);
    if (!data->class_names) return no_memory();
    for (int i = 0; i < e->count; i++) {
        const char *name = e->all[i]->d_name;
        if (!path_is_folder(pictures_join(path, root, name))) {
            leave_out_picture(s, root, e->all[i]);
            continue;
        }
        TW_TRY(check_class_name(root, name));
        data->class_names[data->train.classes] = strdup(name);
        if (!data->class_names[data->train.classes]) return no_memory();
        data->train.classes++;
    }
    return TW_OK;
}

static tw_status find_classes(sorting *s, const char *root, dataset *data)
{
    entries e;
    TW_TRY(list_entries(root, &e));
    tw_status status = pictures_take_classes(s, root, &e, data);
    forget_entries(&e);
    TW_TRY(status);
    size_t classes = data->train.classes;
    if (classes > CLASSES_MOST)
        return tw_fail(TW_ERROR_FORMAT, "%s: %zu folders of classes; %d are the most", root, classes, CLASSES_MOST);
    if (classes >= 2) return TW_OK;
    return tw_fail(TW_ERROR_FORMAT, "%s: %s; a classifier tells two classes or more apart, each a folder of pictures",
                   root, classes ? "one class only" : "no folder of a class");
}

/* The class's number, or how many there are where there is none of that name. */
static size_t find_class(const dataset *data, const char *name)
{
    size_t low = 0, high = data->train.classes;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = strcmp(data->class_names[middle], name);
        if (order == 0) return middle;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return data->train.classes;
}

/* ---- one class's pictures ---- */

/* Keeps the pictures among the entries, in front. */
static int sift(sorting *s, const char *folder, entries *e)
{
    int kept = 0;
    for (int i = 0; i < e->count; i++) {
        struct dirent *entry = e->all[i];
        if (!is_picture(entry)) pictures_leave_out(s, folder, entry->d_name);
        if (!is_picture(entry)) continue;
        e->all[i] = e->all[kept];
        e->all[kept++] = entry;
    }
    return kept;
}

static tw_status deal_out(sorting *s, const entries *e, size_t count, size_t label)
{
    uint32_t *order = malloc((count + 1) * sizeof *order);
    if (!order) return no_memory();
    size_t held = s->share > 0 ? hold_out_of(count, s->share) : 0;
    hold_out_order(order, count, label);
    tw_status status = TW_OK;
    for (size_t i = 0; status == TW_OK && i < count; i++)
        status = pictures_append(i < held ? s->held_out : s->set, e->all[order[i]]->d_name, label);
    free(order);
    return status;
}

static tw_status read_class(sorting *s, const char *folder, size_t label, bool needed)
{
    entries e;
    TW_TRY(list_entries(folder, &e));
    size_t count = (size_t)sift(s, folder, &e);
    tw_status status = TW_OK;
    if (count > 0)
        status = deal_out(s, &e, count, label);
    else if (needed)
        status = tw_fail(TW_ERROR_FORMAT,
                         "%s: a class without a .jpg, .jpeg or .png; add pictures or remove the folder", folder);
    forget_entries(&e);
    return status;
}

static tw_status read_training(sorting *s, const char *root, const dataset *data)
{
    char path[PICTURE_PATH_MOST];
    for (size_t i = 0; i < data->train.classes; i++)
        TW_TRY(read_class(s, pictures_join(path, root, data->class_names[i]), i, true));
    return TW_OK;
}

static tw_status read_held_entries(sorting *s, const char *root, const entries *e, const dataset *data)
{
    char path[PICTURE_PATH_MOST], text[1024];
    for (int i = 0; i < e->count; i++) {
        const char *name = e->all[i]->d_name;
        if (!path_is_folder(pictures_join(path, root, name))) {
            leave_out_picture(s, root, e->all[i]);
            continue;
        }
        size_t label = find_class(data, name);
        if (label == data->train.classes)
            return tw_fail(TW_ERROR_FORMAT, "%s/%s: a class that is not in %s", root, shown(name, text),
                           data->train.files->root);
        TW_TRY(read_class(s, path, label, false));
    }
    return TW_OK;
}

static tw_status read_held(sorting *s, const char *root, const dataset *data)
{
    entries e;
    TW_TRY(list_entries(root, &e));
    tw_status status = read_held_entries(s, root, &e, data);
    forget_entries(&e);
    return status;
}

/* ---- statistics ---- */

typedef struct pixel_counts {
    uint64_t often[3][256];
    size_t tried, read;
    char fault[1024];
} pixel_counts;

/* With mean 0 and deviation 1 a batch holds value / 255. */
static void count_pixels(const image_batch *b, size_t plane, pixel_counts *counts)
{
    const float *value = image_batch_images(b);
    for (size_t i = 0; i < image_batch_count(b); i++)
        for (size_t c = 0; c < 3; c++, value += plane)
            for (size_t p = 0; p < plane; p++) counts->often[c][(int)(value[p] * 255.0f + 0.5f)]++;
    counts->read += image_batch_count(b);
    if (!*counts->fault) snprintf(counts->fault, sizeof counts->fault, "%s", image_batch_fault(b));
}

static tw_status count_sample(const dataset *data, image_batch *b, pixel_counts *counts)
{
    const image_set *set = &data->train;
    size_t most = set->count < PICTURE_SAMPLE ? set->count : PICTURE_SAMPLE;
    for (counts->tried = 0; counts->tried < most;) {
        uint32_t images[MEASURED_AT_ONCE];
        size_t count = most - counts->tried < MEASURED_AT_ONCE ? most - counts->tried : MEASURED_AT_ONCE;
        for (size_t i = 0; i < count; i++) images[i] = (uint32_t)(counts->tried + i);
        image_batch_start(b, &(image_order){.data = data, .set = set, .images = images, .count = count});
        TW_TRY(image_batch_wait(b));
        count_pixels(b, set->height * set->width, counts);
        counts->tried += count;
    }
    return TW_OK;
}

static tw_status pictures_measure(dataset *data)
{
    image_batch *b;
    pixel_counts counts = {0};
    for (size_t c = 0; c < 3; c++) data->deviation[c] = 1;
    TW_TRY(image_batch_create(data, &data->train, MEASURED_AT_ONCE, &b));
    tw_status status = count_sample(data, b, &counts);
    image_batch_destroy(b);
    TW_TRY(status);
    if (2 * counts.read < counts.tried)
        return tw_fail(TW_ERROR_FORMAT, "of %zu pictures %zu cannot be read, of which one is %s", counts.tried,
                       counts.tried - counts.read, counts.fault);
    for (size_t c = 0; c < 3; c++) dataset_take_statistics(data, c, counts.often[c]);
    return TW_OK;
}

/* ---- the format ---- */

/* The first of these names that is a folder. */
static bool find_folder(const char *folder, const char *const names[], char path[PICTURE_PATH_MOST])
{
    for (; *names; names++)
        if (path_is_folder(pictures_join(path, folder, *names))) return true;
    *path = '\0';
    return false;
}

/* Where the three splits stand; "" where one has no folder of its own. */
typedef struct places {
    char train[PICTURE_PATH_MOST], valid[PICTURE_PATH_MOST], test[PICTURE_PATH_MOST];
} places;

static tw_status find_places(const char *folder, double share, places *p)
{
    static const char *const valid[] = {"val", "valid", "validation", NULL}, *const test[] = {"test", NULL};
    *p = (places){0};
    bool divided = path_is_folder(pictures_join(p->train, folder, "train"));
    if (!divided) snprintf(p->train, sizeof p->train, "%s", folder);
    if (divided) find_folder(folder, valid, p->valid);
    if (divided) find_folder(folder, test, p->test);
    if (*p->valid && share > 0)
        return tw_fail(TW_ERROR_ARGUMENT, "--validation holds out a share of the pictures, but %s is there already",
                       p->valid);
    if (*p->valid || *p->test || share > 0) return TW_OK;
    return tw_fail(
        TW_ERROR_ARGUMENT,
        "%s has no pictures to validate or test with%s; training with --validation 0.1 holds out a tenth of each class",
        folder, divided ? ", no folder val or test beside train" : "");
}

static tw_status read_training_lists(const char *root, double share, sorting *s, dataset *data)
{
    *s = (sorting){.set = &data->train, .held_out = &data->valid, .share = share};
    TW_TRY(start_list(&data->train, root));
    TW_TRY(start_list(&data->valid, root));
    TW_TRY(find_classes(s, root, data));
    TW_TRY(read_training(s, root, data));
    if (share == 0 || data->valid.count > 0) return TW_OK;
    return tw_fail(TW_ERROR_FORMAT, "%s: no class has two pictures, so --validation can hold none out", root);
}

/* A split in a folder of its own. */
static tw_status read_split(sorting *s, const char *root, image_set *set, const dataset *data)
{
    picture_files_free(set->files);
    set->files = NULL;
    TW_TRY(start_list(set, root));
    s->set = set;
    s->share = 0;
    TW_TRY(read_held(s, root, data));
    return set->count ? TW_OK : tw_fail(TW_ERROR_FORMAT, "%s: no picture in its classes", root);
}

static tw_status read_lists(const char *folder, double share, sorting *s, dataset *data)
{
    places p;
    TW_TRY(find_places(folder, share, &p));
    TW_TRY(read_training_lists(p.train, share, s, data));
    if (*p.valid) TW_TRY(read_split(s, p.valid, &data->valid, data));
    return *p.test ? read_split(s, p.test, &data->test, data) : TW_OK;
}

static void shape_set(image_set *set, size_t size, size_t classes)
{
    set->channels = 3;
    set->height = set->width = size;
    set->classes = classes;
}

static tw_status read_pictures(const char *folder, const dataset_options *options, dataset *data)
{
    char text[1024];
    sorting s;
    image_set *const sets[] = {&data->train, &data->valid, &data->test};
    TW_TRY(read_lists(folder, options->validation, &s, data));
    if (s.left_out > 0)
        snprintf(
            data->note, sizeof data->note,
            "%zu entr%s of the folders left out, for want of a class, or of a name in .jpg, .jpeg or .png: %s%.300s",
            s.left_out, s.left_out == 1 ? "y" : "ies", s.left_out == 1 ? "" : "the first is ",
            shown(s.first_left_out, text));
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        shape_set(sets[i], options->image_size ? options->image_size : USUAL_SIZE, data->train.classes);
        TW_TRY(mix_list(sets[i]));
    }
    TW_TRY(image_loader_create(options->decoders ? options->decoders : USUAL_DECODERS, &data->loader));
    return pictures_measure(data);
}

static bool holds_picture(const char *path)
{
    DIR *folder = opendir(path);
    bool found = false;
    if (!folder) return false;
    for (struct dirent *entry; !found && (entry = readdir(folder)) != NULL;) found = is_picture(entry);
    closedir(folder);
    return found;
}

/* A folder of folders of pictures. */
static bool holds_classes(const char *path)
{
    char inner[PICTURE_PATH_MOST];
    DIR *folder = opendir(path);
    bool found = false;
    if (!folder) return false;
    for (struct dirent *entry; !found && (entry = readdir(folder)) != NULL;)
        found = is_visible(entry) && holds_picture(pictures_join(inner, path, entry->d_name));
    closedir(folder);
    return found;
}

static bool found_pictures(const char *folder)
{
    char path[PICTURE_PATH_MOST];
    return path_is_folder(pictures_join(path, folder, "train")) || holds_classes(folder);
}

const data_format pictures_format = {"pictures", "CLASS/*.jpg or train/CLASS/*.jpg (also .jpeg, .png)", found_pictures,
                                     read_pictures, true};
