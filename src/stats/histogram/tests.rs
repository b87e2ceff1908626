use std::thread;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn taken(histograms: &Histograms) -> Snapshot {
    let mut snapshot = Snapshot::default();
    histograms.add_to(&mut snapshot);
    snapshot
}

fn count(histograms: &Histograms, stage: Stage) -> u64 {
    taken(histograms).histogram(stage).expect("was on").count()
}

fn collected(nanoseconds: &[u64]) -> Histogram {
    nanoseconds.iter().map(|&nanoseconds| Duration::from_nanos(nanoseconds)).collect()
}

#[test]
fn stages_are_in_the_order_of_the_enum() {
    for (position, &stage) in Stage::ALL.iter().enumerate() {
        assert_eq!(stage as usize, position, "{}", stage.name());
        let camel: String = stage
            .name()
            .split('_')
            .map(|word| word[..1].to_ascii_uppercase() + &word[1..])
            .collect();
        assert_eq!(format!("{stage:?}"), camel);
        assert!(!stage.help().is_empty());
    }
}

#[test]
fn memory_and_error_are_as_documented() {
    assert_eq!(size_of::<Histograms>(), 24);
    assert_eq!(CONFIG.total_buckets(), 1216);
    assert!(CONFIG.error() < 3.2);
    assert!(Duration::from_nanos(LONGEST_NS) > Duration::from_secs(3600));
}

#[test]
fn off_it_allocates_and_records_nothing() {
    let histograms = Histograms::new();
    assert!(!histograms.is_on());
    histograms.record(Stage::Run, SECOND);
    histograms.reset();
    histograms.switch(false);
    assert!(histograms.stages.get().is_none());
    assert_eq!(taken(&histograms).histogram(Stage::Run), None);

    histograms.switch(true);
    histograms.record(Stage::Run, SECOND);
    histograms.switch(false);
    histograms.record(Stage::Run, SECOND);
    assert!(!histograms.is_on());
    assert_eq!(count(&histograms, Stage::Run), 1);
    histograms.switch(true);
    assert_eq!(count(&histograms, Stage::Run), 1);
}

#[test]
fn each_stage_has_its_own() {
    let histograms = Histograms::new();
    histograms.switch(true);
    for (position, &stage) in Stage::ALL.iter().enumerate() {
        (0..=position).for_each(|_| histograms.record(stage, SECOND));
    }
    let counts: Vec<_> = Stage::ALL.iter().map(|&stage| count(&histograms, stage)).collect();
    assert_eq!(counts, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
}

#[test]
fn the_sets_of_several_groups_add_up() {
    let groups = [Histograms::new(), Histograms::new(), Histograms::new()];
    let mut snapshot = Snapshot::default();
    for group in &groups[..2] {
        group.switch(true);
        group.record(Stage::Timer, SECOND);
    }
    groups.iter().for_each(|group| group.add_to(&mut snapshot));
    assert_eq!(snapshot.histogram(Stage::Timer), Some(&collected(&[1_000_000_000; 2])));
}

#[test]
fn a_reset_empties_and_recording_goes_on() {
    let histograms = Histograms::new();
    histograms.switch(true);
    for &stage in Stage::ALL {
        histograms.record(stage, SECOND);
    }
    histograms.reset();
    assert!(Stage::ALL.iter().all(|&stage| count(&histograms, stage) == 0));
    assert!(histograms.is_on());
    histograms.record(Stage::Run, SECOND);
    assert_eq!(count(&histograms, Stage::Run), 1);
}

#[test]
fn many_threads_lose_no_sample() {
    let histograms = Histograms::new();
    histograms.switch(true);
    thread::scope(|scope| {
        for thread in 0..4_u64 {
            let histograms = &histograms;
            scope.spawn(move || {
                for sample in 0..5_000 {
                    histograms.record(Stage::Run, Duration::from_nanos(thread + sample % 10));
                }
            });
        }
    });
    assert_eq!(count(&histograms, Stage::Run), 20_000);
}

#[test]
fn switches_and_resets_among_recorders_leave_no_more_than_was_recorded() {
    let histograms = Histograms::new();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..5_000).for_each(|_| histograms.record(Stage::Run, SECOND)));
        }
        scope.spawn(|| (0..200).for_each(|turn| histograms.switch(turn % 2 == 0)));
        scope.spawn(|| (0..200).for_each(|_| histograms.reset()));
    });
    histograms.switch(true);
    assert!(count(&histograms, Stage::Run) <= 10_000);
    histograms.reset();
    histograms.record(Stage::Run, SECOND);
    assert_eq!(taken(&histograms).histogram(Stage::Run), Some(&collected(&[1_000_000_000])));
}

#[test]
fn no_samples_have_no_quantiles() {
    let empty = Histogram::default();
    assert_eq!((empty.count(), empty.sum()), (0, Duration::ZERO));
    assert_eq!((empty.mean(), empty.max()), (None, None));
    assert_eq!((empty.quantile(0.0), empty.quantile(0.5)), (None, None));
    assert_eq!(empty.buckets().count(), 0);
}

#[test]
fn a_part_that_is_none_has_no_quantile() {
    let one = collected(&[1]);
    assert_eq!(one.quantile(0.0), Some(Duration::from_nanos(1)));
    for part in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
        assert_eq!(one.quantile(part), None);
    }
}

#[test]
fn what_is_too_long_counts_as_the_longest() {
    let longest = Duration::from_nanos(LONGEST_NS);
    for sample in [longest, Duration::from_secs(7200), Duration::MAX] {
        let one: Histogram = [sample].into_iter().collect();
        assert_eq!((one.count(), one.max()), (1, Some(longest)));
        assert_eq!(one.buckets().collect::<Vec<_>>(), [(Duration::from_nanos(1 << 42), 1)]);
    }
}

#[test]
fn powers_of_two_run_from_the_shortest_to_the_longest_sample() {
    let buckets = |samples: &[u64]| -> Vec<_> {
        collected(samples).buckets().map(|(end, count)| (end.as_nanos(), count)).collect()
    };
    assert_eq!(buckets(&[0, 1]), [(2, 2)]);
    assert_eq!(buckets(&[2, 3, 4, 31, 31]), [(4, 2), (8, 1), (16, 0), (32, 2)]);
    assert_eq!(buckets(&[1023, 1024]), [(1024, 1), (2048, 1)]);
}

/// Samples of all magnitudes; a uniform choice would yield almost only long ones.
fn samples() -> impl Strategy<Value = Vec<u64>> {
    vec((0_u32..42, any::<u64>()).prop_map(|(bits, value)| value & ((2 << bits) - 1)), 1..200)
}

proptest! {
    #[test]
    fn quantiles_are_those_of_the_sorted_samples_within_the_error(
        mut samples in samples(),
        part in 0.0..=1.0_f64,
    ) {
        let histogram = collected(&samples);
        samples.sort_unstable();
        let rank = ((part * samples.len() as f64).ceil() as usize).max(1);
        let exact = samples[rank - 1];
        let found = histogram.quantile(part).expect("samples").as_nanos() as u64;
        prop_assert!(exact <= found && found <= exact + exact / 32, "{found} for {exact}");

        let least = samples[0];
        let min = histogram.quantile(0.0).expect("samples").as_nanos() as u64;
        prop_assert!(least <= min && min <= least + least / 32, "{min} for {least}");

        let most = samples[samples.len() - 1];
        let max = histogram.max().expect("samples").as_nanos() as u64;
        prop_assert!(most <= max && max <= most + most / 32, "{max} for {most}");

        let sum: u64 = samples.iter().sum();
        prop_assert!((histogram.sum().as_nanos() as u64).abs_diff(sum) <= sum / 32 + 1);
        let mean = histogram.mean().expect("samples").as_nanos() as u64;
        let exact = sum / samples.len() as u64;
        prop_assert!(mean.abs_diff(exact) <= exact / 32 + 1, "{mean} for {exact}");
    }

    #[test]
    fn powers_of_two_count_every_sample_where_it_belongs(samples in samples()) {
        let histogram = collected(&samples);
        let mut total = 0;
        for (end, found) in histogram.buckets() {
            let end = end.as_nanos() as u64;
            let from = if end == 2 { 0 } else { end / 2 };
            let exact = samples.iter().filter(|&&sample| (from..end).contains(&sample)).count();
            prop_assert_eq!(found, exact as u64);
            total += found;
        }
        prop_assert_eq!(total, samples.len() as u64);
        prop_assert_eq!(histogram.count(), total);
    }

    #[test]
    fn a_sum_is_as_if_all_had_been_recorded_in_one(one in samples(), other in samples()) {
        let both = collected(&[&one[..], &other].concat());
        let mut sum = collected(&one);
        sum += &collected(&other);
        prop_assert_eq!(&sum, &both);
        prop_assert_eq!(both.since(&collected(&one)), collected(&other));
    }
}
