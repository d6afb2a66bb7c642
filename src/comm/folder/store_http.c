/* Files on a web server that takes PUT and DELETE, such as one for WebDAV, or in a store of objects that wants each
 * request signed, as Amazon's S3 does. libcurl speaks to it, and is loaded when it is wanted first, so that nobody else
 * needs it. */
#include "store.h"

#include <string.h>

/* What a URL begins with where requests are signed. */
static const char signs[] = "s3+";

static int is_signed(const char *url)
{
    return strncmp(url, signs, strlen(signs)) == 0;
}

int store_is_http(const char *path)
{
    if (is_signed(path)) path += strlen(signs);
    return strncmp(path, "http://", 7) == 0 || strncmp(path, "https://", 8) == 0;
}

#ifndef TW_HAVE_CURL

tw_status store_open_http(const char *url, store *at)
{
    (void)url, (void)at;
    return tw_fail(TW_ERROR_UNSUPPORTED,
                   "this thinwire was built without libcurl, and no folder can lie on a web server: "
                   "install libcurl4-openssl-dev and build it again");
}

#else

#include <ctype.h>
#include <curl/curl.h>
#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "answer.h"
#include "bytes.h"

enum { IDLE = 8 /* connections that are kept */, TRIES = 6, TALK = 64 * 1024 /* bytes that an error may have */ };

/* The oldest libcurl that signs what goes up as it should, and its option, which headers before 7.75 lack. */
enum { SIGNS_SINCE = 0x075800, OPTION_SIGN = CURLOPTTYPE_STRINGPOINT + 305 };

#define SHORTEST_NAP 0.02
#define LONGEST_NAP 1.0
#define FIRST_PAUSE 0.1 /* seconds before a second try, and twice as many before each further one */
#define LONGEST_PAUSE 2.0
#define CONNECT_SECONDS 10.0
/* In which fewer than SLOWEST bytes a second come or go: it is given up. The caller has between the two of them. */
#define LEAST_SILENT 2.0
#define MOST_SILENT 30.0
#define REMOVE_SECONDS 3L
#define SLOWEST 1024L
#define ANSWER_SECONDS 60.0 /* and as many seconds as its bytes take at SLOWEST */

/* --- the library --------------------------------------------------------------------------------------------- */

/* What is used of it. */
static struct {
    void *library;
    CURLcode (*global_init)(long);
    CURL *(*init)(void);
    CURLcode (*setopt)(CURL *, CURLoption, ...);
    CURLcode (*perform)(CURL *);
    CURLcode (*getinfo)(CURL *, CURLINFO, ...);
    void (*reset)(CURL *);
    void (*cleanup)(CURL *);
    const char *(*strerror)(CURLcode);
    struct curl_slist *(*slist_append)(struct curl_slist *, const char *);
    void (*slist_free_all)(struct curl_slist *);
    curl_version_info_data *(*version_info)(CURLversion);
} curl;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int find(const char *name, void *function)
{
    void *symbol = dlsym(curl.library, name);
    memcpy(function, &symbol, sizeof symbol);
    return symbol != NULL;
}

static void load_curl(void)
{
    curl.library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
    if (!curl.library) curl.library = dlopen("libcurl-gnutls.so.4", RTLD_NOW | RTLD_LOCAL);
    if (!curl.library) return;
    int has_all = find("curl_global_init", &curl.global_init) && find("curl_easy_init", &curl.init) &&
                  find("curl_easy_setopt", &curl.setopt) && find("curl_easy_perform", &curl.perform) &&
                  find("curl_easy_getinfo", &curl.getinfo) && find("curl_easy_reset", &curl.reset) &&
                  find("curl_easy_cleanup", &curl.cleanup) && find("curl_easy_strerror", &curl.strerror) &&
                  find("curl_slist_append", &curl.slist_append) && find("curl_slist_free_all", &curl.slist_free_all) &&
                  find("curl_version_info", &curl.version_info);
    if (!has_all || curl.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) curl.library = NULL;
}

/* --- a place ------------------------------------------------------------------------------------------------- */

typedef struct place {
    char *base, *query; /* "https://host/path" and "?what is behind it", or "" */
    struct curl_slist *headers;
    char *scope, *key, *secret; /* what requests are signed for, and by which key; or NULL */
    char *authorities;          /* a file with the certificates of those who sign a server's; or NULL */
    _Atomic int keeps;          /* it does not remove files, and that has been told */
    _Atomic int has_taken;      /* a file: what it is asked to do is right */
    pthread_mutex_t lock;       /* of what follows */
    CURL *idle[IDLE];
    int idle_count;
    char why[STORE_REASON]; /* the last look found nothing; "": there is nothing to say */
} place;

/* One request, and what has come of it. */
typedef struct request {
    store_pieces *pieces; /* to go or to come; NULL: neither */
    uint64_t done;        /* bytes of them */
    size_t passed;        /* bytes of an answer that nobody wants */
    double seconds;       /* that the server may stand still */
    int is_overflow;
    CURL *by;
    answer said;
    CURLcode outcome;
} request;

static CURL *take_idle(place *me)
{
    pthread_mutex_lock(&me->lock);
    CURL *one = me->idle_count ? me->idle[--me->idle_count] : NULL;
    pthread_mutex_unlock(&me->lock);
    return one ? one : curl.init();
}

static void give_idle(place *me, CURL *one)
{
    curl.reset(one);
    pthread_mutex_lock(&me->lock);
    int keeps = me->idle_count < IDLE;
    if (keeps) me->idle[me->idle_count++] = one;
    pthread_mutex_unlock(&me->lock);
    if (!keeps) curl.cleanup(one);
}

/* The part of both pieces that begins at `at`; returns how long it is. */
static size_t find_part(store_pieces *pieces, uint64_t at, unsigned char **part)
{
    int in_head = at < STORE_HEADER;
    *part = in_head ? pieces->head + at : (unsigned char *)pieces->bytes + (at - STORE_HEADER);
    return in_head ? (size_t)(STORE_HEADER - at) : (size_t)(STORE_HEADER + pieces->size - at);
}

static size_t give_some(char *into, size_t one, size_t room, void *context)
{
    request *all = context;
    unsigned char *part;
    size_t bytes = find_part(all->pieces, all->done, &part);
    if (bytes > one * room) bytes = one * room;
    if (bytes) memcpy(into, part, bytes);
    all->done += bytes;
    return bytes;
}

/* curl may have to say it once more, where a connection that was kept is gone. */
static int begin_again(void *context, curl_off_t offset, int origin)
{
    request *all = context;
    if (origin != SEEK_SET || offset < 0 || (uint64_t)offset > STORE_HEADER + all->pieces->size)
        return CURL_SEEKFUNC_FAIL;
    all->done = (uint64_t)offset;
    return CURL_SEEKFUNC_OK;
}

/* An answer that nobody wants, but for the reason in it. */
static size_t pass_over(char *bytes, size_t one, size_t count, void *context)
{
    request *all = context;
    size_t size = one * count, room = all->passed < ANSWER_BODY ? ANSWER_BODY - 1 - all->passed : 0;
    memcpy(all->said.body + all->passed, bytes, size < room ? size : room);
    all->is_overflow = (all->passed += size) > TALK;
    return all->is_overflow ? 0 : size;
}

static int is_welcome(const request *all)
{
    return all->said.code >= 200 && all->said.code < 300;
}

/* A connection is kept after an answer whose body has been read, which one without a file's bytes has, too. */
static size_t take_some(char *bytes, size_t one, size_t count, void *context)
{
    request *all = context;
    size_t size = one * count;
    curl.getinfo(all->by, CURLINFO_RESPONSE_CODE, &all->said.code);
    if (!is_welcome(all)) return pass_over(bytes, one, count, context);
    for (size_t taken = 0; taken < size;) {
        unsigned char *part;
        size_t room = find_part(all->pieces, all->done, &part);
        if (room > size - taken) room = size - taken;
        all->is_overflow = room == 0;
        if (all->is_overflow) return 0;
        memcpy(part, bytes + taken, room);
        taken += room;
        all->done += room;
    }
    return size;
}

/* What stands behind the name of a header; `line` has no 0 behind it. */
static void take_value(const char *line, size_t length, const char *name, char value[ANSWER_WORD])
{
    size_t at = strlen(name);
    if (length < at || strncasecmp(line, name, at) != 0) return;
    while (at < length && line[at] == ' ') at++;
    while (length > at && isspace((unsigned char)line[length - 1])) length--;
    snprintf(value, ANSWER_WORD, "%.*s", (int)(length - at), line + at);
}

static size_t take_header(char *line, size_t one, size_t count, void *context)
{
    request *all = context;
    take_value(line, one * count, "x-amz-bucket-region:", all->said.region);
    take_value(line, one * count, "date:", all->said.date);
    return one * count;
}

static void set_up(const place *me, CURL *one, const char *url, size_t size, request *all)
{
    double silent = ceil(fmin(fmax(all->seconds, LEAST_SILENT), MOST_SILENT));
    curl.setopt(one, CURLOPT_URL, url);
    curl.setopt(one, CURLOPT_HTTPHEADER, me->headers);
    curl.setopt(one, CURLOPT_NOSIGNAL, 1L);
    curl.setopt(one, CURLOPT_CONNECTTIMEOUT, (long)fmin(silent, CONNECT_SECONDS));
    curl.setopt(one, CURLOPT_LOW_SPEED_LIMIT, SLOWEST);
    curl.setopt(one, CURLOPT_LOW_SPEED_TIME, (long)silent);
    curl.setopt(one, CURLOPT_TIMEOUT, (long)(ANSWER_SECONDS + (double)size / (double)SLOWEST));
    curl.setopt(one, CURLOPT_WRITEFUNCTION, pass_over);
    curl.setopt(one, CURLOPT_WRITEDATA, all);
    curl.setopt(one, CURLOPT_HEADERFUNCTION, take_header);
    curl.setopt(one, CURLOPT_HEADERDATA, all);
    if (me->authorities) curl.setopt(one, CURLOPT_CAINFO, me->authorities);
    if (!me->scope) return;
    curl.setopt(one, (CURLoption)OPTION_SIGN, me->scope);
    curl.setopt(one, CURLOPT_USERNAME, me->key);
    curl.setopt(one, CURLOPT_PASSWORD, me->secret);
}

/* libcurl before 7.87 writes to a TLS connection that may be broken without saying that it wants no SIGPIPE, which ends
 * a program that has no handler of its own. One that was pending before is the program's. */
static CURLcode perform_without_signals(CURL *one)
{
    sigset_t broken, before, pending;
    const struct timespec now = {0};
    sigemptyset(&broken);
    sigaddset(&broken, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &broken, &before);
    sigpending(&pending);
    const CURLcode outcome = curl.perform(one);
    while (!sigismember(&pending, SIGPIPE) && sigtimedwait(&broken, NULL, &now) < 0 && errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return outcome;
}

static void ask(place *me, const char *name, void (*finish)(CURL *one, request *all), request *all)
{
    size_t room = strlen(me->base) + strlen(me->query) + STORE_NAME + 2;
    char *url = malloc(room);
    CURL *one = take_idle(me);
    all->outcome = CURLE_OUT_OF_MEMORY;
    if (url && one) {
        snprintf(url, room, "%s/%s%s", me->base, name, me->query);
        all->by = one;
        set_up(me, one, url, all->pieces ? all->pieces->size : 0, all);
        finish(one, all);
        all->outcome = perform_without_signals(one);
        curl.getinfo(one, CURLINFO_RESPONSE_CODE, &all->said.code);
        curl_off_t length = -1;
        if (all->is_overflow) curl.getinfo(one, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
        if (all->is_overflow && length > 0) all->done = (uint64_t)length;
    }
    if (one) give_idle(me, one);
    free(url);
}

/* Where nothing was answered. */
static const char *explain_outcome(CURLcode outcome)
{
    if (outcome == CURLE_PEER_FAILED_VERIFICATION)
        return "nobody whom this machine trusts has signed the server's certificate for this host: SSL_CERT_FILE may "
               "name a file with the certificate of who did";
    if (outcome == CURLE_SSL_CACERT_BADFILE) return "the file that SSL_CERT_FILE names has no certificates";
    if (outcome == CURLE_SSL_CONNECT_ERROR) return "no TLS can be agreed on, as where the server wants http://";
    return curl.strerror(outcome);
}

static void explain(const request *all, char reason[STORE_REASON])
{
    if (all->said.code >= 300)
        answer_explain(&all->said, reason);
    else
        snprintf(reason, STORE_REASON, "%s",
                 all->is_overflow ? "the server answers and does not end" : explain_outcome(all->outcome));
}

/* --- what is done there -------------------------------------------------------------------------------------- */

static void finish_put(CURL *one, request *all)
{
    curl.setopt(one, CURLOPT_UPLOAD, 1L);
    curl.setopt(one, CURLOPT_INFILESIZE_LARGE, (curl_off_t)(STORE_HEADER + all->pieces->size));
    curl.setopt(one, CURLOPT_READFUNCTION, give_some);
    curl.setopt(one, CURLOPT_READDATA, all);
    curl.setopt(one, CURLOPT_SEEKFUNCTION, begin_again);
    curl.setopt(one, CURLOPT_SEEKDATA, all);
}

/* What another try may mend: no answer, a server that is busy or that has failed. S3 says 400 of a request that came to
 * it too slowly. */
static int is_worth_another(const request *all)
{
    long code = all->said.code;
    if (all->is_overflow) return 0;
    return code < 300 || code == 408 || code == 429 || code >= 500 || answer_is(&all->said, "RequestTimeout");
}

static void pause_before(int attempt)
{
    double seconds = fmin(FIRST_PAUSE * (double)(1 << (attempt < TRIES ? attempt : TRIES)), LONGEST_PAUSE);
    struct timespec left = {(time_t)seconds, (long)((seconds - floor(seconds)) * 1e9)};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

/* No answer, or that of a gateway before a server that is begun anew; but not, say, of one that is full. */
static int may_be_begun_anew(long code)
{
    return code < 300 || code == 408 || code == 429 || (code >= 502 && code <= 504);
}

/* A place that has never taken a file may be a wrong one, and nobody waits long to hear so. One that has will again, if
 * it is begun anew. */
static int has_tried_enough(const place *me, const request *all, int attempt, double end)
{
    int is_late = tw_clock() >= end;
    if (is_late && all->outcome == CURLE_OPERATION_TIMEDOUT) return 1;
    return attempt + 1 >= TRIES && (is_late || !me->has_taken || !may_be_begun_anew(all->said.code));
}

static int http_put(void *self, const char *name, const store_pieces *pieces, double seconds, char reason[STORE_REASON])
{
    place *me = self;
    store_pieces copy = *pieces;
    double end = tw_clock() + seconds;
    for (int attempt = 0;; attempt++) {
        request all = {.pieces = &copy, .seconds = end - tw_clock()};
        ask(me, name, finish_put, &all);
        if (all.outcome == CURLE_OK && is_welcome(&all)) {
            me->has_taken = 1;
            return 1;
        }
        explain(&all, reason);
        if (!is_worth_another(&all) || has_tried_enough(me, &all, attempt, end)) return 0;
        pause_before(attempt);
    }
}

static void finish_get(CURL *one, request *all)
{
    (void)all;
    curl.setopt(one, CURLOPT_HTTPGET, 1L);
    curl.setopt(one, CURLOPT_WRITEFUNCTION, take_some);
}

/* As it should be, of what has not come. */
static int is_absent(const answer *said)
{
    return (said->code == 404 || said->code == 410) && !answer_is(said, "NoSuchBucket");
}

static void note_why(place *me, const request *all)
{
    char reason[STORE_REASON] = "", text[STORE_REASON] = "";
    if (!is_absent(&all->said)) explain(all, reason);
    if (*reason) snprintf(text, sizeof text, " (%.*s)", STORE_REASON - 4, reason);
    pthread_mutex_lock(&me->lock);
    memcpy(me->why, text, sizeof text);
    pthread_mutex_unlock(&me->lock);
}

/* A server may say "403" of what is not there. Whoever waits looks again. */
static store_found http_get(void *self, const char *name, store_pieces *pieces, double seconds)
{
    request all = {.pieces = pieces, .seconds = seconds};
    ask(self, name, finish_get, &all);
    pieces->there = all.done;
    if (!is_welcome(&all)) {
        note_why(self, &all);
        return STORE_ABSENT;
    }
    int has_length = all.done > STORE_HEADER + pieces->size;
    if (all.is_overflow) return has_length ? STORE_WHOLE : STORE_LONG;
    return all.outcome == CURLE_OK ? STORE_WHOLE : STORE_PARTIAL;
}

static void finish_remove(CURL *one, request *all)
{
    (void)all;
    curl.setopt(one, CURLOPT_CUSTOMREQUEST, "DELETE");
    curl.setopt(one, CURLOPT_TIMEOUT, REMOVE_SECONDS);
}

/* What stays is passed over by the next session; but it fills the server. */
static void http_remove(void *self, const char *name)
{
    place *me = self;
    request all = {.pieces = NULL};
    ask(me, name, finish_remove, &all);
    long code = all.said.code;
    if (code < 400 || code == 404 || code == 410 || code >= 500 || atomic_exchange(&me->keeps, 1)) return;
    tw_log(TW_LOG_WARNING,
           "the web server answers %ld to DELETE: every message stays there, and fills it, until somebody removes them",
           code);
}

static void http_remove_all(void *self, const char *prefix)
{
    (void)self, (void)prefix; /* nothing is listed */
}

static void http_tell(void *self, char reason[STORE_REASON])
{
    place *me = self;
    pthread_mutex_lock(&me->lock);
    memcpy(reason, me->why, STORE_REASON);
    pthread_mutex_unlock(&me->lock);
}

static void http_close(void *self)
{
    place *me = self;
    while (me->idle_count) curl.cleanup(me->idle[--me->idle_count]);
    curl.slist_free_all(me->headers);
    pthread_mutex_destroy(&me->lock);
    free(me->base);
    free(me->query);
    free(me->scope);
    free(me->key);
    free(me->secret);
    free(me->authorities);
    free(me);
}

/* --- opening ------------------------------------------------------------------------------------------------- */

/* The URL as people may see it, without a name and a password before the host, and without what is behind a "?". */
static char *cut_secrets(const char *base)
{
    char *shown = strdup(base), *host = shown ? strstr(shown, "://") + 3 : NULL;
    char *last = host ? strrchr(host, '@') : NULL;
    if (last) memmove(host, last + 1, strlen(last + 1) + 1);
    return shown;
}

static int is_possible(const char *url)
{
    const char *host = strstr(url, "://") + 3;
    for (const char *c = url; *c; c++)
        if ((unsigned char)*c <= ' ' || (unsigned char)*c >= 127 || *c == '#') return 0;
    return *host && !strchr("/?:@", *host);
}

/* A password with a "/" would look like a host and a path, and be shown. */
static int hides_password(const char *url)
{
    const char *host = strstr(url, "://") + 3;
    return strchr(host + strcspn(host, "/?"), '@') != NULL;
}

static int add_header(place *me, const char *text, size_t length)
{
    char *line = strndup(text, length);
    struct curl_slist *longer = line ? curl.slist_append(me->headers, line) : NULL;
    free(line);
    if (longer) me->headers = longer;
    return longer != NULL;
}

/* What the environment says goes with every request, a line each, such as "Authorization: Bearer ...". A header that is
 * to be left out is not, where requests are signed: libcurl 7.88 signs it even so. */
static int add_headers(place *me)
{
    const char *text = getenv("THINWIRE_HTTP_HEADERS");
    int added = (me->scope || add_header(me, "Expect:", 7)) && add_header(me, "Cache-Control: no-cache", 23);
    for (size_t length; added && text && *text; text += length + (text[length] == '\n')) {
        length = strcspn(text, "\n");
        if (length) added = add_header(me, text, length);
    }
    return added;
}

/* "" where the environment has it not, which is as good as one that is empty. */
static const char *from_environment(const char *name)
{
    const char *value = getenv(name);
    return value ? value : "";
}

static const char unsigned_body[] = "x-amz-content-sha256: UNSIGNED-PAYLOAD";

/* A libcurl that cannot sign would take the key for a password, and send it. */
static tw_status check_signing(const char *scope)
{
    const curl_version_info_data *version = curl.version_info(CURLVERSION_NOW);
    CURL *one = curl.init();
    int can =
        version->version_num >= SIGNS_SINCE && one && curl.setopt(one, (CURLoption)OPTION_SIGN, scope) == CURLE_OK;
    curl.cleanup(one);
    if (can) return TW_OK;
    return tw_fail(TW_ERROR_UNSUPPORTED,
                   "a URL that begins with s3+ needs libcurl 7.88 or later, built with Amazon's signatures, and this "
                   "machine has %s",
                   version->version);
}

/* For requests that are signed with what Amazon's own programs read. The bodies are not: they have checksums of their
 * own. */
static tw_status prepare_to_sign(place *me)
{
    const char *key = from_environment("AWS_ACCESS_KEY_ID"), *secret = from_environment("AWS_SECRET_ACCESS_KEY");
    const char *region = from_environment("AWS_REGION"), *token = from_environment("AWS_SESSION_TOKEN");
    char *line = NULL;
    if (!*region) region = from_environment("AWS_DEFAULT_REGION");
    if (!*key || !*secret || !*region)
        return tw_fail(TW_ERROR_ARGUMENT, "a URL that begins with s3+ needs %s in the environment",
                       !*key      ? "AWS_ACCESS_KEY_ID"
                       : !*secret ? "AWS_SECRET_ACCESS_KEY"
                                  : "AWS_REGION, such as us-east-1,");
    me->key = strdup(key);
    me->secret = strdup(secret);
    if (asprintf(&me->scope, "aws:amz:%s:s3", region) < 0) me->scope = NULL;
    if (asprintf(&line, "x-amz-security-token: %s", token) < 0) line = NULL;
    int made = me->key && me->secret && me->scope && line && add_header(me, unsigned_body, strlen(unsigned_body)) &&
               (!*token || add_header(me, line, strlen(line)));
    free(line);
    return made ? check_signing(me->scope) : tw_fail(TW_ERROR_MEMORY, "no memory for a folder on a web server");
}

static int is_encoded(const char *at)
{
    return at[0] == '%' && isxdigit((unsigned char)at[1]) && isxdigit((unsigned char)at[2]);
}

/* The first `length` bytes of a URL, with a path as S3 signs it, in which all but these is written as %XX. */
static char *encode_path(const char *url, size_t length)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/";
    const char *host = strstr(url, "://") + 3, *from = host + strcspn(host, "/");
    char *encoded = malloc(3 * length + 1), *to = encoded;
    if (!encoded) return NULL;
    to = mempcpy(to, url, (size_t)(from - url));
    for (; from < url + length; from++) {
        unsigned value = (unsigned char)*from;
        if (is_encoded(from)) {
            sscanf(from + 1, "%2x", &value);
            from += 2;
        }
        if (value && strchr(plain, (int)value))
            *to++ = (char)value;
        else
            to += sprintf(to, "%%%02X", value);
    }
    *to = 0;
    return encoded;
}

static tw_status make_place(const char *url, int is_to_sign, store *at)
{
    place *me = at->self;
    const char *authorities = from_environment("SSL_CERT_FILE");
    size_t length = strcspn(url, "?"), path = length;
    while (url[path - 1] == '/') path--;
    me->base = is_to_sign ? encode_path(url, path) : strndup(url, path);
    me->query = strdup(url + length);
    at->path = me->base ? cut_secrets(me->base) : NULL;
    tw_status status = is_to_sign ? prepare_to_sign(me) : TW_OK;
    if (status != TW_OK) return status;
    if (*authorities) me->authorities = strdup(authorities);
    if (me->query && at->path && add_headers(me) && !*authorities == !me->authorities) return TW_OK;
    return tw_fail(TW_ERROR_MEMORY, "no memory for a folder on a web server");
}

tw_status store_open_http(const char *url, store *at)
{
    static const store_ops ops = {.put = http_put,
                                  .get = http_get,
                                  .remove = http_remove,
                                  .remove_all = http_remove_all,
                                  .tell = http_tell,
                                  .close = http_close};
    int is_to_sign = is_signed(url);
    if (is_to_sign) url += strlen(signs);
    if (!is_possible(url))
        return tw_fail(TW_ERROR_ARGUMENT,
                       "what begins with http is no URL: want http://HOST/PATH or https://HOST/PATH, in "
                       "which other characters than letters, digits and signs are written as %%20");
    if (hides_password(url))
        return tw_fail(TW_ERROR_ARGUMENT,
                       "a URL has an @ behind its first / or ?: write these two in a password as %%2F and %%3F, and an "
                       "@ elsewhere as %%40");
    if (is_to_sign && strpbrk(url, "?@"))
        return tw_fail(
            TW_ERROR_ARGUMENT,
            "a URL that begins with s3+ has no ? and no @: what signs the requests stands in the environment, "
            "as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY");
    pthread_once(&once, load_curl);
    if (!curl.library)
        return tw_fail(TW_ERROR_UNSUPPORTED,
                       "a folder on a web server needs libcurl, and this machine has none: install "
                       "libcurl4");
    *at = (store){&ops, calloc(1, sizeof(place)), NULL, SHORTEST_NAP, LONGEST_NAP};
    if (!at->self) return tw_fail(TW_ERROR_MEMORY, "no memory for a folder on a web server");
    pthread_mutex_init(&((place *)at->self)->lock, NULL);
    tw_status status = make_place(url, is_to_sign, at);
    if (status == TW_OK) return TW_OK;
    ops.close(at->self);
    free(at->path);
    return status;
}

#endif
