#include "cohort/checkpoint/internal/pickle_writer.h"

#include <string>

#include "cohort/checkpoint/testing/files.h"
#include "cohort/checkpoint/testing/python.h"
#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

using ::cohort::testing::FreshDirectory;
using ::cohort::testing::RunPython;
using ::cohort::testing::WriteFile;

// What Python makes of a pickle, as its repr(). Persistent ids come back as ("persistent", id).
std::string Loaded(PickleWriter& writer) {
  const std::string path = FreshDirectory() + "/pickle";
  WriteFile(path, writer.Finish());
  return RunPython(R"(
import pickle, sys
class Unpickler(pickle.Unpickler):
    def persistent_load(self, pid):
        return ("persistent", pid)
sys.stdout.write(ascii(Unpickler(open(sys.argv[1], "rb")).load()))
)",
                   {path});
}

TEST(PickleWriterTest, WritesIntegersOfEveryWidth) {
  PickleWriter writer;
  writer.Ints({0, 1, 255, 256, 65535, 65536, 2147483647, 2147483648, 9223372036854775807, -1, -2147483648, -2147483649,
               INT64_MIN});
  EXPECT_EQ(Loaded(writer),
            "(0, 1, 255, 256, 65535, 65536, 2147483647, 2147483648, 9223372036854775807, -1, -2147483648, -2147483649, "
            "-9223372036854775808)");
}

TEST(PickleWriterTest, WritesADictInOrder) {
  PickleWriter writer;
  writer.EmptyDict();
  writer.Mark();
  writer.String("z.weight");
  writer.Bool(true);
  writer.String("模");
  writer.Bool(false);
  writer.String("");
  writer.EmptyTuple();
  writer.SetItems();
  EXPECT_EQ(Loaded(writer), R"({'z.weight': True, '\u6a21': False, '': ()})");
}

TEST(PickleWriterTest, CallsAFunctionAndRemembersItsName) {
  PickleWriter writer;
  writer.Mark();
  for (int i = 0; i < 3; ++i) {
    writer.Global("builtins", "complex");
    writer.Ints({i, 1});
    writer.Reduce();
  }
  writer.Global("collections", "OrderedDict");
  writer.EmptyTuple();
  writer.Reduce();
  writer.Tuple();
  EXPECT_EQ(Loaded(writer), "(1j, (1+1j), (2+1j), OrderedDict())");
}

TEST(PickleWriterTest, HandsPersistentIdsToTheReader) {
  PickleWriter writer;
  writer.Mark();
  writer.String("storage");
  writer.Int(7);
  writer.Tuple();
  writer.PersistentId();
  EXPECT_EQ(Loaded(writer), "('persistent', ('storage', 7))");
}

}  // namespace
}  // namespace cohort::internal
