//! Two connections joined into one: that of whoever asks, and that of whoever answers.

use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader, copy_buf, sink, split};
use tokio::time::{sleep, timeout};

/// What is on its way in one direction, in bytes.
const BUFFER: usize = 16 * 1024;
/// How long an answer may still come after whoever asks has gone, and how long they may take to go after the answer.
const LINGER: Duration = Duration::from_secs(30);

/// Carries bytes both ways until the answer has ended, and says how many it had. Whoever answers may take nothing more
/// long before: what they said until then arrives all the same.
pub async fn join<A, B>(asks: A, answers: B) -> io::Result<u64>
where
    A: AsyncRead + AsyncWrite,
    B: AsyncRead + AsyncWrite,
{
    let (asked, mut to_asker) = split(asks);
    let (answered, mut to_answerer) = split(answers);
    let (mut asked, mut answered) = (buffered(asked), buffered(answered));
    let down = async {
        let said = copy_buf(&mut answered, &mut to_asker).await?;
        to_asker.shutdown().await?;
        Ok::<u64, io::Error>(said)
    };
    let up = async {
        match copy_buf(&mut asked, &mut to_answerer).await {
            Ok(_) => {
                // Gone already is as good as ended.
                let _ = to_answerer.shutdown().await;
                sleep(LINGER).await;
            }
            // Nothing more is taken there; that it was not taken is for the answer to say.
            Err(_) => sleep(LINGER).await,
        }
    };
    let said = tokio::select! {
        biased;
        said = down => said?,
        () = up => return Err(io::ErrorKind::TimedOut.into()),
    };
    // A socket that is closed while something was not read forgets what it has yet to send.
    let _ = timeout(LINGER, copy_buf(&mut asked, &mut sink())).await;
    Ok(said)
}

fn buffered<R: AsyncRead>(reader: R) -> BufReader<R> {
    BufReader::with_capacity(BUFFER, reader)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, duplex, join as paired};
    use tokio::net::{TcpListener, TcpStream};

    #[tokio::test]
    async fn what_is_asked_and_answered_arrives() {
        let (asker, left) = duplex(64);
        let (right, answerer) = duplex(64);
        let joined = tokio::spawn(join(left, right));
        let (mut from, mut to) = split(asker);
        let (mut asked, mut answer) = split(answerer);
        let echo = tokio::spawn(async move {
            let mut all = Vec::new();
            asked.read_to_end(&mut all).await.expect("read");
            answer.write_all(&all).await.expect("written");
            answer.shutdown().await.expect("ended");
        });
        let question = vec![7_u8; 100_000];
        let sent = question.clone();
        let sending = tokio::spawn(async move {
            to.write_all(&sent).await.expect("written");
            to.shutdown().await.expect("ended");
        });
        let mut got = Vec::new();
        from.read_to_end(&mut got).await.expect("read");
        assert_eq!(got, question);
        assert_eq!(joined.await.expect("no panic").expect("joined"), 100_000);
        echo.await.expect("no panic");
        sending.await.expect("no panic");
    }

    #[tokio::test]
    async fn who_takes_nothing_is_heard_to_the_end() {
        let (mut asker, left) = duplex(1024);
        // Says something, and breaks whenever it is written to.
        let (broken, gone) = duplex(1);
        drop(gone);
        let (says, mut speaker) = duplex(1024);
        let (reader, _) = split(says);
        let (_, writer) = split(broken);
        let joined = tokio::spawn(join(left, paired(reader, writer)));
        asker.write_all(b"unwanted").await.expect("written");
        tokio::task::yield_now().await;
        speaker.write_all(b"no room").await.expect("written");
        drop(speaker);
        let mut got = String::new();
        asker.read_to_string(&mut got).await.expect("read");
        assert_eq!(got, "no room");
        drop(asker);
        assert_eq!(joined.await.expect("no panic").expect("joined"), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_arrives_though_something_asked_was_not_taken() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("an address");
        let (asker, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (mut asker, (left, _)) = (asker.expect("connected"), accepted.expect("accepted"));
        let (right, mut answerer) = duplex(1024 * 1024);
        asker.write_all(&[1; 64 * 1024]).await.expect("written");
        let answer = vec![2; 200_000];
        answerer.write_all(&answer).await.expect("written");
        // Room for what was said, and none for what is asked.
        let (reader, _kept) = split(right);
        let (full, _never_read) = duplex(1);
        let (_, writer) = split(full);
        drop(answerer);
        let joined = join(left, paired(reader, writer)).await;
        assert_eq!(joined.expect("joined"), 200_000);
        let mut got = Vec::new();
        asker.read_to_end(&mut got).await.expect("all of it");
        assert_eq!(got, answer);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_waited_for_when_nobody_asks() {
        let (asker, left) = duplex(64);
        let (right, _silent) = duplex(64);
        drop(asker);
        let joined = join(left, right).await;
        assert_eq!(
            joined.expect_err("given up").kind(),
            io::ErrorKind::TimedOut
        );
    }
}
