"""Training batches from image files in Python, without a network, in one thread: ImageNet's usual transforms (a random part resized to 224
pixels, mirrored with probability 1/2, normalised). worker.py explains the protocol.

pil: torchvision's ImageFolder and transforms, as most people use them.
tensor: torchvision's decode_jpeg and its transforms of uint8 tensors, which are faster than those of PIL images.
memory: the same transforms of images that are decoded, and resized to a shorter edge of 256, before the measurement.
opencv: OpenCV's decoder and resize, and arithmetic of NumPy. Its interpolation is not antialiased, so it does less work.
"""

import argparse
import itertools
import math
import random

import numpy
import torch
import torchvision
import torchvision.transforms.v2 as T
from worker import serve

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SIZE = 224


def pil_samples(folder):
    transform = torchvision.transforms.Compose([
        torchvision.transforms.RandomResizedCrop(SIZE), torchvision.transforms.RandomHorizontalFlip(), torchvision.transforms.ToTensor(),
        torchvision.transforms.Normalize(MEAN, STD)
    ])
    return torchvision.datasets.ImageFolder(folder, transform)


class TensorSamples(torchvision.datasets.ImageFolder):
    """Crop, resize and flip work on uint8 tensors."""

    def __init__(self, folder):
        super().__init__(folder)
        self.prepare = T.Compose([T.RandomResizedCrop(SIZE, antialias=True), T.RandomHorizontalFlip(), T.ToDtype(torch.float32, scale=True), T.Normalize(MEAN, STD)])

    def __getitem__(self, index):
        path, label = self.samples[index]
        return self.prepare(torchvision.io.decode_jpeg(torchvision.io.read_file(path))), label


class MemorySamples(TensorSamples):
    def __init__(self, folder):
        super().__init__(folder)
        resize = T.Resize(256)
        self.images = [resize(torchvision.io.decode_jpeg(torchvision.io.read_file(path))) for path, _ in self.samples]

    def __getitem__(self, index):
        return self.prepare(self.images[index]), self.samples[index][1]


class OpenCvSamples(torchvision.datasets.ImageFolder):
    def __init__(self, folder):
        import cv2
        cv2.setNumThreads(0)
        super().__init__(folder)
        self.cv2 = cv2
        self.scale = (1 / (255 * numpy.array(STD))).astype(numpy.float32)
        self.shift = (-numpy.array(MEAN) / numpy.array(STD)).astype(numpy.float32)

    def __getitem__(self, index):
        path, label = self.samples[index]
        image = self.cv2.cvtColor(self.cv2.imread(path), self.cv2.COLOR_BGR2RGB)
        top, left, height, width = self.draw_part(*image.shape[:2])
        image = self.cv2.resize(image[top:top + height, left:left + width], (SIZE, SIZE), interpolation=self.cv2.INTER_LINEAR)
        if random.random() < 0.5:
            image = self.cv2.flip(image, 1)
        pixels = image.astype(numpy.float32)
        pixels *= self.scale
        pixels += self.shift
        return torch.from_numpy(numpy.ascontiguousarray(pixels.transpose(2, 0, 1))), label

    @staticmethod
    def draw_part(height, width):
        for _ in range(10):
            area = height * width * random.uniform(0.08, 1)
            ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
            w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < w <= width and 0 < h <= height:
                return random.randint(0, height - h), random.randint(0, width - w), h, w
        return 0, 0, height, width


SAMPLES = {"pil": pil_samples, "tensor": TensorSamples, "memory": MemorySamples, "opencv": OpenCvSamples}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pipeline", choices=SAMPLES, required=True)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--data", required=True, help="folder that contains the class folders")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    loader = torch.utils.data.DataLoader(SAMPLES[options.pipeline](options.data), options.batch_size, shuffle=True, drop_last=True)
    source = itertools.chain.from_iterable(itertools.repeat(loader))

    def run(steps):
        for images, _ in itertools.islice(source, steps):
            assert images.shape == (options.batch_size, 3, SIZE, SIZE)

    serve(vars(options), run)


if __name__ == "__main__":
    main()
