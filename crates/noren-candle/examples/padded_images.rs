//! Images of different sizes in one batch. Patches (parts of an image, one token each) attend only to the patches of
//! their own image, not to padding.
//!
//! A batch holds all images in grids of one size, so smaller images are padded on the right and below. In this example,
//! the padding contains NaN, which changes no bit of the outputs for the patches of an image. These outputs equal the
//! outputs for the image alone, up to rounding.
//!
//!     cargo run -p noren-candle --example padded_images

use candle_core::{DType, Device, Tensor};
use candle_nn::{VarBuilder, VarMap};
use noren::noren_mask::interval::IntervalSet;
use noren::{Facts, Shape, atoms};
use noren_candle::layers::{LayerConfig, LayerPlans, TransformerEncoder};
use noren_candle::nn::Mode;
use noren_picture::Draw;
use noren_picture::TerminalOptions;

/// The grid of the batch: number of patches across, and number of patches down.
const GRID: [usize; 2] = [5, 4];
/// Number of values in each patch.
const WIDTH: usize = 32;
/// The size of each image: number of patches across, and number of patches down.
const IMAGES: [[usize; 2]; 2] = [[5, 4], [3, 2]];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let valid =
        |image: [usize; 2]| (0..GRID[0] * GRID[1]).map(move |at| at % GRID[0] < image[0] && at / GRID[0] < image[1]);
    let keys = IMAGES.map(|image| {
        let mut keys = IntervalSet::new();
        (0..).zip(valid(image)).filter(|(_, valid)| *valid).for_each(|(at, _)| keys.push(at, at + 1));
        keys
    });
    let mask = atoms::padding();
    let shape = Shape::square(GRID[0] * GRID[1]).batch(IMAGES.len()).heads(4);
    let facts = Facts::new().real_keys(keys.to_vec());
    let bound = mask.bind(&shape, &facts)?;
    println!("{}", bound.picture().batch(1).head(0).to_terminal(&TerminalOptions::default())?);

    let vb = VarBuilder::from_varmap(&VarMap::new(), DType::F32, &Device::Cpu);
    let encoder = TransformerEncoder::new(&LayerConfig::new(WIDTH, 4), 2, &vb)?;
    let patches = Tensor::randn(0f32, 1., (IMAGES.len(), GRID[0] * GRID[1], WIDTH), &Device::Cpu)?;
    let marks: Vec<u8> = IMAGES.into_iter().flat_map(valid).map(u8::from).collect();
    let marks =
        Tensor::from_vec(marks, (IMAGES.len(), GRID[0] * GRID[1], 1), &Device::Cpu)?.broadcast_as(patches.shape())?;
    let hostile = marks.where_cond(&patches, &Tensor::full(f32::NAN, patches.shape(), &Device::Cpu)?)?;
    let plans = LayerPlans::new(&mask, 2, &shape, &facts)?;
    let run = |input: &Tensor, plans: &LayerPlans| -> Result<Vec<Vec<Vec<f32>>>, noren_candle::Error> {
        Ok(encoder.forward(input, plans, Mode::Inference)?.to_vec3()?)
    };
    let (padded, hostile) = (run(&patches, &plans)?, run(&hostile, &plans)?);

    for (row, image) in IMAGES.into_iter().enumerate() {
        let own: Vec<usize> = valid(image).enumerate().filter(|(_, valid)| *valid).map(|(at, _)| at).collect();
        let same = own.iter().filter(|at| padded[row][**at] == hostile[row][**at]).count();
        // Without padding: the patches of one image as a sequence.
        let places = Tensor::from_iter(own.iter().map(|at| *at as u32), &Device::Cpu)?;
        let alone = patches.get(row)?.index_select(&places, 0)?.unsqueeze(0)?;
        let plans = LayerPlans::new(&atoms::full(), 2, &Shape::square(own.len()).heads(4), &Facts::new())?;
        let alone = run(&alone, &plans)?;
        let pairs = own.iter().zip(&alone[0]).flat_map(|(at, alone)| hostile[row][*at].iter().zip(alone));
        let far = pairs.map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
        let (width, height, count) = (image[0], image[1], own.len());
        println!(
            "image {row}, {width} x {height}: NaN in the padding leaves all bits of {same} of {count} patches unchanged; the largest difference to the image without padding is {far:.0e}"
        );
        assert!(same == count && far < 1e-5);
    }
    Ok(())
}
