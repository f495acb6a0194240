// Whether files have the stats that they had: what Memo.is_unchanged does, several times as fast.
//
// Without the C++ library: loading that took longer than what is done here.
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

// A stat takes 1 us and a thread 20 us to start. Four threads took 0.54 ms for 1,322 files where
// one took 0.98 ms and eight 0.69 ms (16 cores).
constexpr int64_t kFilesPerThread = 256;
constexpr int64_t kMostThreads = 4;

struct Part {
  const char* path;
  const int64_t* stamp;
  int64_t count;
  bool unchanged;
};

int64_t nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

bool is_unchanged(const char* path, const int64_t* stamp) {
  struct stat now;
  int64_t found[4] = {-1, -1, -1, -1};
  if (stat(path, &now) == 0) {
    found[0] = now.st_size;
    found[1] = nanoseconds(now.st_mtim);
    found[2] = nanoseconds(now.st_ctim);
    found[3] = static_cast<int64_t>(now.st_ino);
  }
  return memcmp(found, stamp, sizeof(found)) == 0;
}

const char* next(const char* path) { return path + strlen(path) + 1; }

void* check(void* argument) {
  Part& part = *static_cast<Part*>(argument);
  const char* path = part.path;
  part.unchanged = true;
  for (int64_t i = 0; i < part.count && part.unchanged; ++i, path = next(path)) {
    part.unchanged = is_unchanged(path, part.stamp + 4 * i);
  }
  return nullptr;
}

int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

}  // namespace

// paths: count names, each ended by NUL. stamps: size, mtime in ns, ctime in ns and inode of each;
// four times -1 for what has to be absent. Returns 1 where all of it is so, else 0.
extern "C" int unchanged(const char* paths, const int64_t* stamps, int64_t count) {
  const int64_t wanted = least(kMostThreads, 1 + count / kFilesPerThread);
  const int64_t parts = least(wanted, sysconf(_SC_NPROCESSORS_ONLN));
  Part part[kMostThreads];
  pthread_t thread[kMostThreads];
  bool started[kMostThreads];
  for (int64_t i = 0; i < parts; ++i) {
    part[i] = {paths, stamps, count / (parts - i), true};
    started[i] = i + 1 < parts && pthread_create(&thread[i], nullptr, check, &part[i]) == 0;
    if (!started[i]) check(&part[i]);
    for (int64_t file = 0; file < part[i].count; ++file) paths = next(paths);
    stamps += 4 * part[i].count;
    count -= part[i].count;
  }
  bool all = true;
  for (int64_t i = 0; i < parts; ++i) {
    if (started[i]) pthread_join(thread[i], nullptr);
    all = all && part[i].unchanged;
  }
  return all;
}
