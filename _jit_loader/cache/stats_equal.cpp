// Compares the stats of files with those of a memo, as Memo.is_unchanged does in Python: 5,500
// files take 7 ms instead of 18 on 2 cores.
//
// build/byproducts.py compiles it once per cache.
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

constexpr int kMaxThreads = 4;
constexpr int64_t kFilesPerThread = 200;  // starting a thread takes as long as 30 stats

struct Part {
  const char *names, *end;
  const int64_t* stamps;
  int64_t files;
  const char* but;  // paths that may have another stamp, each with its NUL; then another NUL
  bool equal;
};

int64_t nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

bool is_folder(const char* name, int64_t length) { return length > 0 && name[length - 1] == '/'; }

bool is_one_of(const char* paths, const char* folder, const char* name) {
  const size_t length = strlen(folder);
  for (; *paths; paths += strlen(paths) + 1) {
    if (strncmp(paths, folder, length) == 0 && strcmp(paths + length, name) == 0) return true;
  }
  return false;
}

void* compare(void* argument) {
  Part& part = *static_cast<Part*>(argument);
  const char* folder_name = "";
  int folder = -1;
  bool equal = true;
  int64_t left = part.files;
  const int64_t* stamps = part.stamps;
  for (const char* name = part.names; equal && name < part.end;) {
    const auto length = static_cast<int64_t>(strlen(name));
    if (is_folder(name, length)) {
      if (folder >= 0) close(folder);
      folder_name = name;
      folder = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    } else {
      int64_t found[4] = {-1, -1, -1, -1};  // of an absent file
      struct stat now;
      if (folder >= 0 && fstatat(folder, name, &now, AT_EMPTY_PATH) == 0) {
        found[0] = now.st_size;
        found[1] = nanoseconds(now.st_mtim);
        found[2] = nanoseconds(now.st_ctim);
        found[3] = static_cast<int64_t>(now.st_ino);
      }
      equal = left-- > 0 &&
              (memcmp(found, stamps, sizeof(found)) == 0 || is_one_of(part.but, folder_name, name));
      stamps += 4;
    }
    name += length + 1;
  }
  if (folder >= 0) close(folder);
  part.equal = equal && left == 0;
  return nullptr;
}

// Divides the files into parts of about the same size, which begin with a folder's name. Returns
// the number of parts, 0 if a damaged memo has more names than stamps.
int divide(const Part& all, int64_t most, Part* parts) {
  Part part{all.names, all.end, all.stamps, 0, all.but, false};
  int count = 0;
  for (const char* name = all.names; name < all.end;) {
    const auto length = static_cast<int64_t>(strlen(name));
    if (!is_folder(name, length)) {
      ++part.files;
    } else if (part.files > all.files / most && count < most - 1) {
      part.end = name;
      parts[count++] = part;
      part = {name, all.end, part.stamps + 4 * part.files, 0, all.but, false};
      if (part.stamps > all.stamps + 4 * all.files) return 0;
    }
    name += length + 1;
  }
  part.files = all.files - (part.stamps - all.stamps) / 4;
  parts[count++] = part;
  return count;
}

int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

}  // namespace

// Returns 1 if all files have their stamps. The columns of names and stamps are those of Memo.
extern "C" int stats_equal(const char* names, int64_t names_size, const int64_t* stamps,
                           int64_t files, const char* but) {
  const int64_t cores = smaller(sysconf(_SC_NPROCESSORS_ONLN), kMaxThreads);
  const int64_t most = smaller(cores, files / kFilesPerThread);
  Part parts[kMaxThreads];
  const int count =
      divide({names, names + names_size, stamps, files, but, false}, most < 1 ? 1 : most, parts);
  pthread_t threads[kMaxThreads];
  bool started[kMaxThreads] = {};
  for (int i = 1; i < count; ++i) {
    started[i] = pthread_create(&threads[i], nullptr, compare, &parts[i]) == 0;
  }
  bool equal = count > 0;
  for (int i = 0; i < count; ++i) {
    if (started[i]) {
      pthread_join(threads[i], nullptr);
    } else {
      compare(&parts[i]);
    }
    equal = equal && parts[i].equal;
  }
  return equal;
}
