/* tsan.h - TSAN is defined where ThreadSanitizer looks on. */
#ifndef SUPPORT_TSAN_H
#define SUPPORT_TSAN_H

#if defined(__SANITIZE_THREAD__)
#define TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TSAN 1
#endif
#endif

#endif
