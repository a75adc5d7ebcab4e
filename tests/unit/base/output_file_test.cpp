#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <sstream>

#include "base/file.h"
#include "tests/testing/temporary_folder.h"
#include "trainer/error.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;

std::string refusal_of(const fs::path& path) {
  try {
    write_output_file(path, "new");
  } catch (const Error& error) {
    return error.what();
  }
  return "written";
}

// The content that another program would read.
std::string content_of(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(OutputFile, ANewOrRegularFileIsCompleteOrAsBefore) {
  const testing::TemporaryFolder folder;
  const auto path = folder.path() / "a.txt";
  write_output_file(path, "old");
  {
    OutputFile unfinished(path);
    unfinished.write("half");
  }
  EXPECT_EQ(content_of(path), "old");
  write_output_file(path, "new");
  EXPECT_EQ(content_of(path), "new");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);
}

TEST(OutputFile, ALinkStaysALink) {
  const testing::TemporaryFolder folder;
  write_output_file(folder.path() / "target", "old");
  fs::create_symlink("target", folder.path() / "link");
  write_output_file(folder.path() / "link", "new");
  EXPECT_TRUE(fs::is_symlink(folder.path() / "link"));
  EXPECT_EQ(content_of(folder.path() / "target"), "new");
}

TEST(OutputFile, ALinkWhoseTargetDoesNotExistYetStaysALink) {
  const testing::TemporaryFolder folder;
  const auto links = folder.path() / "links";
  const auto disk = folder.path() / "disk";
  fs::create_directory(links);
  fs::create_directory(disk);
  fs::create_symlink(disk / "absolute", links / "absolute");
  fs::create_symlink("../disk/relative", links / "relative");
  fs::create_symlink("relative2", links / "chain");
  fs::create_symlink("../disk/chain", links / "relative2");
  // A relative link target is relative to the folder of the link.
  fs::create_directory_symlink(links, folder.path() / "folder");
  fs::create_symlink("../disk/folder", links / "within");
  for (const auto& [link, target] : {std::pair{links / "absolute", "absolute"},
                                     {links / "relative", "relative"},
                                     {links / "chain", "chain"},
                                     {folder.path() / "folder" / "within", "folder"}}) {
    EXPECT_EQ(refusal_of(link), "written");
    EXPECT_TRUE(fs::is_symlink(link)) << link;
    EXPECT_EQ(content_of(disk / target), "new") << link;
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(disk), {}), 4);
  fs::create_symlink(disk / "absent" / "a", links / "absent");
  EXPECT_EQ(refusal_of(links / "absent"), "cannot write " + (disk / "absent" / "a").string() + ": No such file or directory");
  fs::create_symlink("circle", links / "circle");
  EXPECT_EQ(refusal_of(links / "circle"), "cannot write " + (links / "circle").string() + ": Too many levels of symbolic links");
}

TEST(OutputFile, APipeAndADeviceAreWrittenInPlace) {
  const testing::TemporaryFolder folder;
  const auto pipe = folder.path() / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  auto reader = std::async([&pipe] { return content_of(pipe); });
  write_output_file(pipe, "new");
  EXPECT_EQ(reader.get(), "new");
  EXPECT_TRUE(fs::is_fifo(pipe));
  write_output_file("/dev/null", "new");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  fs::create_symlink("/dev/null", folder.path() / "null");
  write_output_file(folder.path() / "null", "new");
  EXPECT_TRUE(fs::is_symlink(folder.path() / "null"));
  EXPECT_EQ(refusal_of("/dev/full"), "cannot write /dev/full: No space left on device");
}

TEST(OutputFile, TheStandardOutputIsWrittenWhereItStands) {
  const testing::TemporaryFolder folder;
  const auto path = folder.path() / "out";
  std::ofstream(path) << "before ";
  const Descriptor before(::dup(STDOUT_FILENO));
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  ASSERT_EQ(::dup2(file.number(), STDOUT_FILENO), STDOUT_FILENO);
  const auto refusal = refusal_of("/dev/stdout") + ", " + refusal_of(path);
  const bool is_known = is_standard_output(path);
  ::dup2(before.number(), STDOUT_FILENO);
  EXPECT_EQ(refusal, "written, written");
  EXPECT_TRUE(is_known);
  EXPECT_FALSE(is_standard_output(path));
  EXPECT_EQ(content_of(path), "before newnew");
}

TEST(OutputFile, OtherKindsAreRefusedByName) {
  const testing::TemporaryFolder folder;
  EXPECT_EQ(refusal_of(folder.path()), "cannot write " + folder.path().string() + ": it is a folder, not a regular file");
  const auto path = (folder.path() / "socket").string();
  const Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(bind(socket.number(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(refusal_of(path), "cannot write " + path + ": it is a socket, not a regular file");
  const auto absent = folder.path() / "absent" / "a.txt";
  EXPECT_EQ(refusal_of(absent), "cannot write " + absent.string() + ": No such file or directory");
}

TEST(OutputFile, PermissionsFollowTheUmask) {
  const testing::TemporaryFolder folder;
  const auto path = folder.path() / "a.txt";
  const auto before = ::umask(002);
  write_output_file(path, "new");
  ::umask(before);
  EXPECT_EQ(fs::status(path).permissions(), fs::perms(0664));
}

}  // namespace
}  // namespace trainer
