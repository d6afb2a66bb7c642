/* sanitizers.h - TSAN is defined where ThreadSanitizer looks on, and ASAN where AddressSanitizer does. */
#ifndef SUPPORT_SANITIZERS_H
#define SUPPORT_SANITIZERS_H

#if defined(__SANITIZE_THREAD__)
#define TSAN 1
#elif defined(__SANITIZE_ADDRESS__)
#define ASAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TSAN 1
#elif __has_feature(address_sanitizer)
#define ASAN 1
#endif
#endif

#endif
