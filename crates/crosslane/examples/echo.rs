//! A listener that sends back what it receives, and a client: `serve ADDRESS`, and `ask ADDRESS WORDS..` at any host of the fabric.
//! docs/one-sided.md shows it in a lab.

use crosslane::fabric::Fabric;
use crosslane::stream::Stream;
use std::error::Error;
use std::net::SocketAddr;

type Outcome = Result<(), Box<dyn Error>>;

fn main() -> Outcome {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", address] => serve(address.parse()?),
        ["ask", address, ref words @ ..] => ask(address.parse()?, &words.join(" ")),
        _ => Err("usage: echo serve ADDRESS | echo ask ADDRESS WORDS..".into()),
    }
}

fn serve(address: SocketAddr) -> Outcome {
    let listener = Fabric::open()?.listen(address)?;
    println!("{}", listener.address());
    loop {
        let stream = listener.accept()?;
        println!("{}", stream.peer());
        if let Err(error) = echo(&stream) {
            println!("{error}");
        }
    }
}

fn echo(stream: &Stream) -> Outcome {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match stream.receive(&mut buffer)? {
            0 => return Ok(stream.finish()?),
            count => stream.send(&buffer[..count])?,
        }
    }
}

fn ask(address: SocketAddr, text: &str) -> Outcome {
    let stream = Fabric::open()?.connect(address)?;
    stream.send(text.as_bytes())?;
    stream.finish()?;
    let mut answer = vec![0; text.len()];
    stream.receive_all(&mut answer)?;
    println!("{}", String::from_utf8(answer)?);
    Ok(())
}
