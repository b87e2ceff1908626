use super::*;

#[test]
fn every_question_has_its_answer_and_a_place_on_the_page() {
    let costs = Costs::example();
    let answers = in_parallel(&[1, 2, 3], |number| number * 10);
    assert_eq!(answers.iter().map(|(_, answer)| answer).sum::<i32>(), 60);
    assert!(answers.iter().all(|(question, answer)| question * 10 == *answer));

    let cores = vec![1, 4];
    let effort = Effort { requests: 500, nanos: 0, seeds: 1 };
    let mut all = Vec::new();
    for place in 0..SHAPES.len() {
        for (cores, burns) in [(1, false), (1, true), (4, false), (4, true)] {
            let question =
                Question { place, cores, clients: 32, burns, contention: None, eager: false };
            let load = Load { clients: 32, think: THINK, burn: burns.then_some(BURN) };
            let found = predict(SHAPES[place].0, Machine::of(cores), load, &costs, effort);
            all.push((question, found));
        }
    }
    let model = all[0].1.clone();
    let answers = Answers { all, cores, clients: vec![32] };
    let pair = Pair {
        place: 0,
        cpus: 2,
        connections: 32,
        fitted: false,
        throughput: model.throughput * 2.0,
        cpu: model.cpu,
        p99: model.p99,
        model,
    };
    let blocks = page::blocks(&costs, &[pair], &answers, (2, 0.0));
    let text: String = blocks.iter().map(page::text_of).collect();
    assert!(text.contains("-50 %"), "{text}");
    for (_, server, _) in SHAPES {
        assert!(text.contains(server), "{text}");
    }
    assert_eq!(answers.raw().as_array().map(Vec::len), Some(16));
}
