// Compares the stats of files with those of a memo, as Memo.is_unchanged does in Python: 5,500
// files take 5 ms instead of 18.
//
// build/helpers.py compiles it once per cache.
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

int64_t nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

// Returns 1 if all files have their stamps. The columns of names and stamps are those of Memo.
extern "C" int stats_equal(const char* names, int64_t names_size, const int64_t* stamps,
                           int64_t files) {
  const char* const end = names + names_size;
  int folder = -1;
  bool equal = true;
  for (int64_t length; equal && names < end; names += length + 1) {
    length = static_cast<int64_t>(strlen(names));
    if (length > 0 && names[length - 1] == '/') {
      if (folder >= 0) close(folder);
      folder = open(names, O_PATH | O_DIRECTORY | O_CLOEXEC);
      continue;
    }
    int64_t found[4] = {-1, -1, -1, -1};  // of an absent file
    struct stat now;
    if (folder >= 0 && fstatat(folder, names, &now, AT_EMPTY_PATH) == 0) {
      found[0] = now.st_size;
      found[1] = nanoseconds(now.st_mtim);
      found[2] = nanoseconds(now.st_ctim);
      found[3] = static_cast<int64_t>(now.st_ino);
    }
    equal = files-- > 0 && memcmp(found, stamps, sizeof(found)) == 0;
    stamps += 4;
  }
  if (folder >= 0) close(folder);
  return equal && files == 0;
}
