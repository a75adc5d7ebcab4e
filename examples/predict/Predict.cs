// Classifies image files: Predict.exe CHECKPOINT IMAGE...
using System;
using System.Linq;
using System.Runtime.InteropServices;
using System.Text;

static class Predict {
  const string Library = "trainer_predict";
  [DllImport(Library)] static extern IntPtr trainer_predict_open(string checkpoint, string device, int flags, StringBuilder error, UIntPtr size);
  [DllImport(Library)] static extern void trainer_predict_close(IntPtr predictor);
  [DllImport(Library)] static extern long trainer_predict_num_classes(IntPtr predictor);
  [DllImport(Library)] static extern IntPtr trainer_predict_class_name(IntPtr predictor, long label);
  [DllImport(Library)] static extern int trainer_predict_file(IntPtr predictor, string path, double[] probabilities, float[] features,
                                                              StringBuilder error, UIntPtr size);

  static int Main(string[] args) {
    var error = new StringBuilder(1000);
    var predictor = trainer_predict_open(args[0], null, 0, error, (UIntPtr)error.Capacity);
    if (predictor == IntPtr.Zero) { Console.Error.WriteLine(error); return 1; }
    var probabilities = new double[trainer_predict_num_classes(predictor)];
    foreach (var path in args.Skip(1)) {
      if (trainer_predict_file(predictor, path, probabilities, null, error, (UIntPtr)error.Capacity) != 0) { Console.Error.WriteLine(error); return 1; }
      var best = Array.IndexOf(probabilities, probabilities.Max());
      var name = Marshal.PtrToStringAnsi(trainer_predict_class_name(predictor, best));
      Console.WriteLine("{0}  {1}  {2:R}", path, name, probabilities[best]);
    }
    trainer_predict_close(predictor);
    return 0;
  }
}
