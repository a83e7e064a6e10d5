#![allow(clippy::print_stdout)]
use super::*;
use std::time::Instant;

pub(crate) fn load(path: &str) -> Vec<Vec<f64>> {
    let b = std::fs::read(path).unwrap();
    let n = u32::from_le_bytes(b[0..4].try_into().unwrap()) as usize;
    let r = u32::from_le_bytes(b[4..8].try_into().unwrap()) as usize;
    (0..n)
        .map(|j| {
            (0..r)
                .map(|i| {
                    let o = 8 + (j * r + i) * 8;
                    f64::from_le_bytes(b[o..o + 8].try_into().unwrap())
                })
                .collect()
        })
        .collect()
}

fn run(name: &str, cols: &[Vec<f64>], chunk: usize, enc: fn(&[f64], &mut Vec<u8>)) {
    let chunks: Vec<&[f64]> = cols
        .iter()
        .flat_map(|c| c.chunks_exact(chunk.min(c.len())))
        .collect();
    let n: usize = chunks.iter().map(|c| c.len()).sum();
    let mut best_e = f64::MAX;
    let mut best_d = f64::MAX;
    let mut size = 0;
    for _ in 0..5 {
        let mut bufs = Vec::new();
        let t = Instant::now();
        let mut all = Vec::new();
        let mut ends = Vec::new();
        for c in &chunks {
            enc(c, &mut all);
            ends.push(all.len());
        }
        best_e = best_e.min(t.elapsed().as_nanos() as f64 / n as f64);
        size = all.len();
        let t = Instant::now();
        let mut s = 0;
        for (c, e) in chunks.iter().zip(&ends) {
            bufs.clear();
            decode_values(&all[s..*e], c.len(), &mut bufs).unwrap();
            s = *e;
            std::hint::black_box(&bufs);
        }
        best_d = best_d.min(t.elapsed().as_nanos() as f64 / n as f64);
    }
    println!(
        "{name:28} chunk {chunk:5}  {:.3} B/value  enc {best_e:.1} ns  dec {best_d:.2} ns   ({n} values)",
        size as f64 / n as f64
    );
}

fn rows(name: &str, cols: &[Vec<f64>]) {
    let n = cols[0].len();
    let mut prev = vec![0u64; cols.len()];
    let mut total = 0;
    let mut raw = 0;
    let mut ns = 0;
    let mut nd = 0;
    let mut prevd = prev.clone();
    for i in 0..n {
        let cur: Vec<u64> = cols.iter().map(|c| c[i].to_bits()).collect();
        let mut out = Vec::new();
        let t = Instant::now();
        encode_row(&prev, &cur, &mut out);
        ns += t.elapsed().as_nanos();
        let t = Instant::now();
        decode_row(&out, &mut prevd).unwrap();
        nd += t.elapsed().as_nanos();
        assert_eq!(prevd, cur);
        if i > 0 {
            raw += out.len();
            total += lz4_flex::block::compress(&out).len();
        }
        prev = cur;
    }
    let k = ((n - 1) * cols.len()) as f64;
    println!(
        "{name} log row: {:.3} B/sample raw, {:.3} after LZ4, {:.2} ns enc {:.2} ns dec",
        raw as f64 / k,
        total as f64 / k,
        ns as f64 / k,
        nd as f64 / k
    );
}

#[test]
#[ignore]
fn measure() {
    for f in ["/tmp/codec/live10.bin", "/tmp/codec/live2.bin"] {
        let Ok(_) = std::fs::metadata(f) else {
            continue;
        };
        let cols = load(f);
        let constant = cols
            .iter()
            .filter(|c| c.iter().all(|v| v.to_bits() == c[0].to_bits()))
            .count();
        println!(
            "{f}: {} series, {} constant, {} rows",
            cols.len(),
            constant,
            cols[0].len()
        );
        let live: Vec<Vec<f64>> = cols
            .iter()
            .filter(|c| c.iter().any(|v| v.to_bits() != c[0].to_bits()))
            .cloned()
            .collect();
        for chunk in [256, 600, 1024, 1200] {
            run("quick all", &cols, chunk, encode_quick);
            run("quick changing", &live, chunk, encode_quick);
            run("small all", &cols, chunk, encode_small);
            run("small changing", &live, chunk, encode_small);
        }
        rows("all", &cols);
        rows("changing", &live);
    }
    for (name, shape) in super::tests::SHAPES {
        let cols: Vec<Vec<f64>> = (0..8)
            .map(|s| shape(&mut super::tests::Random::new(s + 1), 3600))
            .collect();
        run(&format!("quick {name}"), &cols, 256, encode_quick);
        run(&format!("small {name}"), &cols, 3600, encode_small);
    }
}

// ---- experiments
use pco::{ChunkConfig, DeltaSpec, ModeSpec};
fn pco_len<T: pco::data_types::Number>(v: &[T], cfg: &ChunkConfig) -> usize {
    let fc = pco::wrapped::FileCompressor::default();
    let mut cc = fc.chunk_compressor(v, cfg).unwrap();
    let mut out = Vec::new();
    cc.write_meta(&mut out).unwrap();
    cc.write_page(0, &mut out).unwrap();
    out.len()
}
fn pco_i64(v: &[f64], level: usize, out: &mut Vec<u8>) {
    if v.iter().all(|x| x.to_bits() == v[0].to_bits()) {
        out.extend([0; 4]);
        return;
    }
    let mut ints = Vec::new();
    match super::decimal::to_integers(v, &mut ints) {
        super::decimal::Scale::Decimal(_) => {
            let n = pco_len(&ints, &ChunkConfig::default().with_compression_level(level));
            out.resize(out.len() + n + 3, 0)
        }
        super::decimal::Scale::Bits => {
            let n = pco_len(v, &ChunkConfig::default().with_compression_level(level));
            out.resize(out.len() + n + 3, 0)
        }
    }
}
fn pco4(v: &[f64], out: &mut Vec<u8>) {
    pco_i64(v, 4, out)
}
fn pco8(v: &[f64], out: &mut Vec<u8>) {
    pco_i64(v, 8, out)
}
fn pcof4(v: &[f64], out: &mut Vec<u8>) {
    let n = pco_len(v, &ChunkConfig::default().with_compression_level(4));
    out.resize(out.len() + n, 0)
}
fn pcof8(v: &[f64], out: &mut Vec<u8>) {
    let n = pco_len(v, &ChunkConfig::default().with_compression_level(8));
    out.resize(out.len() + n, 0)
}
struct BitW {
    out: Vec<u8>,
    acc: u128,
    n: u32,
}
impl BitW {
    fn put(&mut self, v: u64, w: u32) {
        if w == 0 {
            return;
        }
        self.acc |= (v as u128) << self.n;
        self.n += w;
        while self.n >= 8 {
            self.out.push(self.acc as u8);
            self.acc >>= 8;
            self.n -= 8;
        }
    }
}
fn gorilla(v: &[f64], out: &mut Vec<u8>) {
    let mut w = BitW {
        out: Vec::new(),
        acc: 0,
        n: 0,
    };
    let mut prev = v[0].to_bits();
    w.put(prev, 64);
    let (mut lz, mut tz) = (99u32, 0u32);
    for x in &v[1..] {
        let b = x.to_bits();
        let d = b ^ prev;
        prev = b;
        if d == 0 {
            w.put(0, 1);
            continue;
        }
        let l = d.leading_zeros().min(31);
        let t = d.trailing_zeros();
        if lz != 99 && l >= lz && t >= tz {
            w.put(0b01, 2);
            w.put(d >> tz, 64 - lz - tz);
        } else {
            w.put(0b11, 2);
            w.put(l as u64, 5);
            w.put((64 - l - t - 1) as u64, 6);
            w.put(d >> t, 64 - l - t);
            lz = l;
            tz = t;
        }
    }
    w.put(0, 7);
    out.append(&mut w.out);
}
fn size(name: &str, cols: &[Vec<f64>], chunk: usize, enc: fn(&[f64], &mut Vec<u8>)) {
    let chunks: Vec<&[f64]> = cols
        .iter()
        .flat_map(|c| c.chunks(chunk.min(c.len())))
        .collect();
    let n: usize = chunks.iter().map(|c| c.len()).sum();
    let mut best = f64::MAX;
    let mut len = 0;
    for _ in 0..4 {
        let mut all = Vec::new();
        let t = Instant::now();
        for c in &chunks {
            enc(c, &mut all);
        }
        best = best.min(t.elapsed().as_nanos() as f64 / n as f64);
        len = all.len();
    }
    println!(
        "{name:36} chunk {chunk:5} {:.3} B/value enc {best:.1} ns",
        len as f64 / n as f64
    );
}
#[test]
#[ignore]
fn experiments() {
    for f in ["/tmp/codec/live10.bin", "/tmp/codec/live2.bin"] {
        let Ok(_) = std::fs::metadata(f) else {
            continue;
        };
        let cols = load(f);
        let live: Vec<Vec<f64>> = cols
            .iter()
            .filter(|c| c.iter().any(|v| v.to_bits() != c[0].to_bits()))
            .cloned()
            .collect();
        println!("== {f} changing");
        for chunk in [256, 600, 1200] {
            size("ours", &live, chunk, encode_small);
            size("pco auto i64 level 4", &live, chunk, pco4);
            size("pco auto i64 level 8", &live, chunk, pco8);
        }
        let names: Vec<String> = std::fs::read_to_string(format!("{f}.names"))
            .unwrap()
            .lines()
            .map(String::from)
            .collect();
        let mut rows: Vec<(usize, usize, usize, usize, &str)> = cols
            .iter()
            .zip(&names)
            .map(|(c, n)| {
                let mut o = vec![];
                encode_small(c, &mut o);
                let mut p = vec![];
                pco4(c, &mut p);
                let mut q = vec![];
                for k in c.chunks(256) {
                    encode_quick(k, &mut q);
                }
                let ch = c
                    .windows(2)
                    .filter(|w| w[0].to_bits() != w[1].to_bits())
                    .count();
                (q.len(), o.len(), p.len(), ch, n.as_str())
            })
            .collect();
        rows.sort_by_key(|r| std::cmp::Reverse(r.0));
        for r in rows.iter().take(45) {
            println!(
                "q {} s {} pcoauto {} changes {} {}",
                r.0, r.1, r.2, r.3, r.4
            );
        }
    }
    println!("== not decimal");
    for (name, shape) in super::tests::SHAPES {
        if ![
            "percent of ratios",
            "random walk",
            "single precision",
            "mostly decimal",
            "special values",
        ]
        .contains(&name)
        {
            continue;
        }
        let cols: Vec<Vec<f64>> = (0..8)
            .map(|s| shape(&mut super::tests::Random::new(s + 1), 3600))
            .collect();
        cmp(name, &cols);
    }
    for f in ["/tmp/codec/live10.bin", "/tmp/codec/live2.bin"] {
        let Ok(_) = std::fs::metadata(f) else {
            continue;
        };
        let cols = load(f);
        let names: Vec<String> = std::fs::read_to_string(format!("{f}.names"))
            .unwrap()
            .lines()
            .map(String::from)
            .collect();
        for n in ["cpu_percent", "used_RAM"] {
            let i = names.iter().position(|x| x == n).unwrap();
            cmp(&format!("live {n} {f}"), &cols[i..=i]);
        }
    }
    // percent of two counters at 0.5 s, 16 cpus, 100 Hz
    let mut r = super::tests::Random::new(5);
    let c: Vec<f64> = (0..3600)
        .map(|_| {
            let tot = 800.0 + r.below(3) as f64;
            let busy = r.below(400) as f64;
            100.0 * busy / tot
        })
        .collect();
    cmp("cpu_percent 16 cpus", &[c]);
    let mut x = 50.0f64;
    let c: Vec<f64> = (0..3600)
        .map(|_| {
            x += r.unit() + r.unit() + r.unit() - 1.5;
            x
        })
        .collect();
    cmp("gauss walk", &[c]);
    let c: Vec<f64> = (0..3600)
        .map(|i| 20.0 + (i as f64 / 300.0).sin() * 5.0)
        .collect();
    cmp("smooth sine", &[c]);
    let c: Vec<f64> = (0..3600).map(|_| r.below(20) as f64 / 7.0).collect();
    cmp("few distinct ratios", &[c]);
}
fn cmp(name: &str, cols: &[Vec<f64>]) {
    for chunk in [256, 3600] {
        size(&format!("{name}: ours"), cols, chunk, encode_small);
        size(&format!("{name}: quick"), cols, chunk, encode_quick);
        size(&format!("{name}: pco f64 auto 4"), cols, chunk, pcof4);
        size(&format!("{name}: pco f64 auto 8"), cols, chunk, pcof8);
        size(&format!("{name}: gorilla"), cols, chunk, gorilla);
    }
}
