/* Features in a file: the same as without it, whatever became of the file, and of nobody else's sounds. */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "feature_file.h"
#include "sound.h"
#include "speech_data.h"
#include "support.h"

enum { SOUNDS = 3, WHOLE = SOUNDS - 1, NAME = 64 };

static speech_corpus corpus;
static speech_request plain = {
    .channel = SOUND_MONO, .most_seconds = 2, .most_bytes = 1 << 20, .most_bytes_option = "--limit"};
static speech_request cached;
static speech_set expected;

/* Two sounds, of an odd number of floats in all, and between them one that is none. */
static int set_up(void **state)
{
    if (make_folder(state)) return -1;
    assert_ok(feature_settings_parse("rate=8000,bins=7", &plain.features));
    cached = plain;
    cached.cache = strdup(in_folder("cache"));
    cached.cache_option = "--feature-cache";
    write_noise("a.wav", 1, 1000);
    write_text("b.wav", "not a sound");
    write_noise("c.wav", 2, 1080);
    write_text("list.json", "{\"audio_filepath\": \"a.wav\"}\n{\"audio_filepath\": \"b.wav\"}\n"
                            "{\"audio_filepath\": \"c.wav\"}\n");
    assert_ok(speech_corpus_load(in_folder("list.json"), in_folder("list.json"), &corpus));
    assert_ok(speech_load(&corpus.train, NULL, &plain, &expected));
    assert_int_equal(expected.count, WHOLE);
    assert_int_equal((expected.items[0].frames + expected.items[1].frames) * expected.width % 2, 1);
    return 0;
}

static int tear_down(void **state)
{
    speech_release(&expected);
    speech_corpus_release(&corpus);
    free((void *)cached.cache);
    return remove_folder(state);
}

static bool are_equal(const speech_set *one, const speech_set *other)
{
    char text[SKIPS_TEXT], other_text[SKIPS_TEXT];
    if (one->count != other->count || one->width != other->width || one->seconds != other->seconds) return false;
    for (size_t i = 0; i < one->count; i++) {
        const speech_item *a = &one->items[i], *b = &other->items[i];
        if (a->source != b->source || a->frames != b->frames) return false;
        if (memcmp(a->rows, b->rows, a->frames * one->width * sizeof *a->rows) != 0) return false;
    }
    return strcmp(skips_text(&one->skipped, text), skips_text(&other->skipped, other_text)) == 0;
}

/* Whether loading with `request` gives what `wanted` is. */
static bool loads(const speech_request *request, const speech_set *wanted)
{
    speech_set set;
    assert_ok(speech_load(&corpus.train, NULL, request, &set));
    bool same = are_equal(&set, wanted);
    speech_release(&set);
    return same;
}

/* The folder's files; `name` becomes the last one's, below the test's folder. */
static int count_files(char name[NAME])
{
    int count = 0;
    DIR *folder = opendir(cached.cache);
    assert_non_null(folder);
    for (const struct dirent *entry; (entry = readdir(folder));)
        if (entry->d_name[0] != '.') {
            snprintf(name, NAME, "cache/%.50s", entry->d_name);
            count++;
        }
    closedir(folder);
    return count;
}

TEST_BETWEEN(is_what_would_be_computed, set_up, tear_down)
{
    char name[NAME];
    assert_true(loads(&cached, &expected));
    assert_true(loads(&cached, &expected));
    assert_int_equal(count_files(name), 1);
    assert_null(strstr(name, ".part"));
}

/* A sound that has changed, but neither in size nor in time, goes unnoticed: so it was the file that was read. */
TEST_BETWEEN(is_read_again, set_up, tear_down)
{
    struct stat about;
    assert_true(loads(&cached, &expected));
    assert_int_equal(stat(in_folder("a.wav"), &about), 0);
    const struct timespec times[] = {about.st_atim, about.st_mtim};
    write_noise("a.wav", 3, 1000);
    assert_int_equal(utimensat(AT_FDCWD, in_folder("a.wav"), times, 0), 0);
    assert_true(loads(&cached, &expected));
    assert_false(loads(&plain, &expected));
}

static void write_later(const char *name, unsigned seed)
{
    struct stat about;
    assert_int_equal(stat(in_folder(name), &about), 0);
    const struct timespec times[] = {about.st_atim, {about.st_mtim.tv_sec + 1, about.st_mtim.tv_nsec}};
    write_noise(name, seed, 1000);
    assert_int_equal(utimensat(AT_FDCWD, in_folder(name), times, 0), 0);
}

TEST_BETWEEN(follows_a_sound_that_changes, set_up, tear_down)
{
    speech_set now;
    assert_true(loads(&cached, &expected));
    write_later("a.wav", 3);
    assert_ok(speech_load(&corpus.train, NULL, &plain, &now));
    assert_false(are_equal(&now, &expected));
    assert_true(loads(&cached, &now));
    speech_release(&now);
}

/* Each of what the file's key tells apart. */
TEST_BETWEEN(is_of_these_settings_alone, set_up, tear_down)
{
    assert_true(loads(&cached, &expected));
    speech_request shorter = cached, other = cached, left = cached;
    assert_ok(feature_settings_parse("rate=8000,bins=7,floor=0.5", &other.features));
    shorter.most_seconds = 0.13; /* the second sound is longer */
    left.channel = 0;
    assert_false(loads(&other, &expected));
    assert_false(loads(&shorter, &expected));
    assert_true(loads(&left, &expected));
    char name[NAME];
    assert_int_equal(count_files(name), 4);
    corpus.train.items[0].offset = 0.01;
    assert_false(loads(&cached, &expected));
    corpus.train.items[0].offset = 0;
    corpus.train.items[0].duration = 0.05;
    assert_false(loads(&cached, &expected));
    corpus.train.items[0].duration = 0;
    assert_true(loads(&cached, &expected));
}

/* Every byte that is another, and every length that is less, is noticed, and the file is made anew. */
TEST_BETWEEN(makes_a_damaged_file_anew, set_up, tear_down)
{
    char name[NAME];
    size_t size, again;
    assert_true(loads(&cached, &expected));
    assert_int_equal(count_files(name), 1);
    unsigned char *good = read_whole(name, &size);
    for (size_t i = 0; i < size; i += i < 64 || i + 512 > size ? 1 : 61) {
        good[i] ^= 0x20;
        write_bytes(name, good, size);
        good[i] ^= 0x20;
        assert_true(loads(&cached, &expected));
        unsigned char *made = read_whole(name, &again);
        bool rest = i >= 40 && i < 64; /* of the header, where nothing stands */
        if (!rest && (again != size || memcmp(made, good, size) != 0)) fail_msg("byte %zu is believed", i);
        free(made);
    }
    for (size_t length = 0; length < size; length += 97) {
        write_bytes(name, good, length);
        assert_true(loads(&cached, &expected));
    }
    free(good);
}

/* As from the folder above, with a detour, or through a link. */
TEST_BETWEEN(is_the_same_however_the_sounds_are_spelled, set_up, tear_down)
{
    char name[NAME];
    speech_utterance *one = &corpus.train.items[0];
    char *const spelled = one->path;
    assert_true(loads(&cached, &expected));
    assert_int_equal(symlink("a.wav", in_folder("link.wav")), 0);
    static const char *const others[] = {"./a.wav", "cache/../a.wav", "link.wav"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        one->path = strdup(in_folder(others[i]));
        assert_true(loads(&cached, &expected));
        assert_int_equal(count_files(name), 1);
        free(one->path);
    }
    one->path = spelled;
}

/* Processes that begin at once, beside what one left that died. */
TEST_BETWEEN(many_make_one, set_up, tear_down)
{
    enum { PROCESSES = 6 };
    char name[NAME], part[NAME + 8];
    assert_true(loads(&cached, &expected));
    assert_int_equal(count_files(name), 1);
    assert_int_equal(unlink(in_folder(name)), 0);
    snprintf(part, sizeof part, "%s.part", name);
    write_text(part, "what was begun");
    for (int i = 0; i < PROCESSES; i++)
        if (fork() == 0) _exit(loads(&cached, &expected) ? 0 : 1);
    for (int i = 0; i < PROCESSES; i++) {
        int code;
        assert_true(wait(&code) > 0);
        assert_int_equal(code, 0);
    }
    assert_int_equal(count_files(name), 1);
    assert_null(strstr(name, ".part"));
}

/* Whoever waits for a maker that fails makes it. The maker here is this process, which has the lock. */
TEST_BETWEEN(waits_for_who_makes_it, set_up, tear_down)
{
    char name[NAME], part[NAME + 8], byte;
    int ends[2], code;
    assert_true(loads(&cached, &expected));
    assert_int_equal(count_files(name), 1);
    assert_int_equal(unlink(in_folder(name)), 0);
    snprintf(part, sizeof part, "%s.part", name);
    int held = open(in_folder(part), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    assert_true(held >= 0);
    assert_int_equal(flock(held, LOCK_EX), 0);
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        close(held);
        bool same = loads(&cached, &expected);
        _exit(write(ends[1], "x", 1) == 1 && same ? 0 : 1);
    }
    close(ends[1]);
    struct pollfd told = {.fd = ends[0], .events = POLLIN};
    assert_int_equal(poll(&told, 1, 50), 0); /* a right one has nothing to say, however long */
    assert_int_equal(unlink(in_folder(part)), 0);
    close(held);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    close(ends[0]);
    assert_true(waitpid(child, &code, 0) == child && code == 0);
}

/* Whose checksum is right. The last two numbers make ten when they are added in 64 bits. */
TEST(counts_that_do_not_fit_are_refused)
{
    static const float rows[10];
    static const feature_sound fit[] = {{7, 1}, {3, 1}}, less[] = {{7, 1}, {2, 1}}, more[] = {{11, 1}, {0, 1}},
                               around[] = {{UINT64_MAX, 1}, {11, 1}};
    static const feature_sound *const all[] = {fit, less, more, around};
    for (size_t i = 0; i < 4; i++) {
        feature_writer writer;
        feature_file file;
        FILE *stream = tmpfile();
        assert_non_null(stream);
        assert_true(feature_file_begin(&writer, stream) && feature_file_rows(&writer, rows, 10));
        assert_true(feature_file_end(&writer, all[i], 2, "key"));
        bool good = feature_file_open(&file, fileno(stream), 2, "key");
        assert_int_equal(good, i == 0);
        if (good) feature_file_close(&file);
        fclose(stream);
    }
}

TEST_BETWEEN(a_full_disk_is_told, set_up, tear_down)
{
    struct rlimit before, small;
    char name[NAME];
    speech_set set;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = (struct rlimit){64, before.rlim_max};
    assert_ptr_not_equal(signal(SIGXFSZ, SIG_IGN), SIG_ERR);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    tw_status status = speech_load(&corpus.train, NULL, &cached, &set);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, TW_ERROR_IO);
    assert_said(cached.cache, "name another folder with --feature-cache");
    assert_int_equal(count_files(name), 0);
    assert_true(loads(&cached, &expected));
}

TEST_BETWEEN(a_folder_that_cannot_be_is_told, set_up, tear_down)
{
    speech_set set;
    speech_request wrong = cached;
    wrong.cache = "/dev/null/cache";
    assert_fails(speech_load(&corpus.train, NULL, &wrong, &set), TW_ERROR_IO, "/dev/null/cache: cannot write features");
    wrong.cache = in_folder("a.wav");
    assert_fails(speech_load(&corpus.train, NULL, &wrong, &set), TW_ERROR_IO, "--feature-cache");
}

/* Whoever has no right to write reads what others have made. */
TEST_BETWEEN(is_read_where_nothing_can_be_written, set_up, tear_down)
{
    assert_true(loads(&cached, &expected));
    assert_int_equal(chmod(cached.cache, 0500), 0);
    assert_true(loads(&cached, &expected));
    assert_int_equal(chmod(cached.cache, 0700), 0);
}

RUN_TESTS(NULL, NULL)
