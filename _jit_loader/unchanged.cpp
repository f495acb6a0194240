// Whether files have the stats that they had: what Memo.is_unchanged does, several times as fast.
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace {

// A stat takes 1 us and a thread 20 us to start.
constexpr int64_t kFilesPerThread = 256;
constexpr int64_t kMostThreads = 4;

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

}  // namespace

// paths: count names, each ended by NUL. stamps: size, mtime in ns, ctime in ns and inode of each;
// four times -1 for what has to be absent. Returns 1 where all of it is so, else 0.
extern "C" int unchanged(const char* paths, const int64_t* stamps, int64_t count) {
  std::atomic<bool> all{true};
  const auto check = [&all](const char* path, const int64_t* stamp, int64_t files) {
    for (; files > 0 && all.load(std::memory_order_relaxed); --files, stamp += 4) {
      if (!is_unchanged(path, stamp)) all = false;
      path += strlen(path) + 1;
    }
  };
  const int64_t cores = std::max<int64_t>(1, std::thread::hardware_concurrency());
  const int64_t parts = std::min({cores, kMostThreads, 1 + count / kFilesPerThread});
  std::vector<std::thread> threads;
  for (int64_t part = parts; part > 1; --part) {
    const int64_t files = count / part;
    threads.emplace_back(check, paths, stamps, files);
    for (int64_t i = 0; i < files; ++i) paths += strlen(paths) + 1;
    stamps += 4 * files;
    count -= files;
  }
  check(paths, stamps, count);
  for (std::thread& thread : threads) thread.join();
  return all;
}
